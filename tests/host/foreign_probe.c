/* Looks for RDMA devices as a libibverbs would: with the library that argv[1] names loaded, or with none. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc > 1 && dlopen(argv[1], RTLD_NOW) == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  for (int i = 0; i < 3; ++i) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
    if (fd < 0) return 1;
    close(fd);
  }
  return 0;
}
