// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/provider.h"

#include "mpi_shim/ofi/fabric.h"
#include "mpi_shim/ofi/info.h"
#include "mpi_shim/ofi/running.h"

namespace ewarp::ofi {

fi_provider provider = {.version = kProviderVersion,
                        .fi_version = FI_VERSION(1, 14),  // see fi_prov_ini()
                        .context = {},
                        .name = kProviderName,
                        .getinfo = get_info,
                        .fabric = open_fabric,
                        .cleanup = [] {}};

}  // namespace ewarp::ofi

extern "C" FI_EXT_INI {
  ewarp::ofi::provider.fi_version = ewarp::ofi::served_version();
  fi_param_define(&ewarp::ofi::provider, "iface", FI_PARAM_STRING,
                  "Interface or IP address to use (default: the one with the default route)");
  return &ewarp::ofi::provider;
}
