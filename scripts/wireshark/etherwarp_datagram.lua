-- SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
-- Wireshark dissector for EtherWARP's datagram form of iWARP (UD, SIDR and RD on UDP): docs/protocol/datagrams.md.
--
--   wireshark -X lua_script:etherwarp_datagram.lua        (tshark likewise), or put it into the folder of personal plugins
--
-- Any UDP payload that has the form is taken, on whatever port. Filters: etherwarp.type, etherwarp.dst_qpn, etherwarp.psn,
-- etherwarp.rdmap.opcode, etherwarp.crc.bad, ...

local ew = Proto("etherwarp", "EtherWARP datagram iWARP")

ew.prefs.check_crc = Pref.bool("Check the CRC32C", true, "Compute the CRC32C of each datagram")

local types = {
  [0] = "UD_SEND", [1] = "UD_ERR", [2] = "UD_WREC", [3] = "SIDR_REQ", [4] = "SIDR_REP",
  [8] = "RD_REQ", [9] = "RD_RSP", [10] = "RD_ACK", [11] = "RD_OPEN", [12] = "RD_OPENACK", [13] = "RD_CLOSE",
  [14] = "RD_RESET",
}
-- HLen without optional words; whether a segment follows.
local base_words = {
  [0] = 4, [1] = 5, [2] = 7, [3] = 5, [4] = 6, [8] = 9, [9] = 9, [10] = 10, [11] = 14, [12] = 14, [13] = 9, [14] = 5,
}
local has_segment = { [0] = true, [1] = true, [2] = true, [3] = true, [4] = true, [8] = true, [9] = true }

local opcodes = {
  [0] = "RDMA Write", [1] = "RDMA Read Request", [2] = "RDMA Read Response", [3] = "Send", [4] = "Send with Invalidate",
  [5] = "Send with SE", [6] = "Send with SE and Invalidate", [7] = "Terminate", [8] = "Immediate Data",
  [9] = "Immediate Data with SE", [10] = "Atomic Request", [11] = "Atomic Response", [15] = "Send with Immediate",
}
local layers = { [0] = "RDMAP", [1] = "DDP", [2] = "LLP" }
local atomic_operations = { [0] = "FetchAdd", [2] = "CmpSwap" }
local sidr_status = { [0] = "accepted", [1] = "rejected", [2] = "no service", [3] = "unsupported version" }
local reset_reasons = {
  [0] = "unspecified", [1] = "unknown association", [2] = "no such QP", [3] = "Q_Key", [4] = "resources", [5] = "version",
  [6] = "protocol violation", [7] = "QP in error or destroyed", [8] = "administrative",
}

local f = ew.fields

local function u8(name, label, base, values, mask)
  f[name:gsub("%.", "_")] = ProtoField.uint8("etherwarp." .. name, label, base or base.DEC, values, mask)
end
local function u16(name, label, format)
  f[name:gsub("%.", "_")] = ProtoField.uint16("etherwarp." .. name, label, format or base.DEC)
end
local function u24(name, label)
  f[name:gsub("%.", "_")] = ProtoField.uint24("etherwarp." .. name, label, base.HEX)
end
local function u32(name, label, format)
  f[name:gsub("%.", "_")] = ProtoField.uint32("etherwarp." .. name, label, format or base.DEC)
end
local function u64(name, label)
  f[name:gsub("%.", "_")] = ProtoField.uint64("etherwarp." .. name, label, base.HEX)
end
local function flag(name, label, mask)
  f[name:gsub("%.", "_")] = ProtoField.bool("etherwarp." .. name, label, 8, nil, mask)
end

u8("version", "Version", base.DEC, nil, 0xf0)
u8("type", "Type", base.DEC, types, 0x0f)
u8("flags", "Flags", base.HEX)
flag("flags.i", "I: immediate word", 0x80)
flag("flags.n", "N: no CRC", 0x40)
flag("flags.a", "A: acknowledge now", 0x20)
flag("flags.e", "E: ECN echo", 0x10)
flag("flags.x", "X: retransmission", 0x08)
flag("flags.f", "F: error report", 0x04)
flag("flags.r", "R: receiver not ready", 0x02)
flag("flags.k", "K/T/ACK: cookie challenge, reflected tag, acknowledgement", 0x01)
u8("hlen", "Header length (words)", base.DEC)
u8("aux", "Aux", base.DEC)
u24("dst_qpn", "Destination QPN")
u24("src_qpn", "Source QPN")
u32("qkey", "Q_Key", base.HEX)
u32("imm", "Immediate data", base.HEX)
f.extension = ProtoField.bytes("etherwarp.extension", "Extension words")
u32("err_msn", "MSN in error")
u32("rec_msn", "Record MSN")
u32("rec_len", "Record length")
u32("rec_off", "Offset in the record")
u32("trans_id", "Transaction")
u16("service_port", "Service port")
u8("sidr_status", "Status", base.DEC, sidr_status)
u24("qpn", "QPN")
f.private = ProtoField.bytes("etherwarp.private", "Private data")
u32("tag", "Tag", base.HEX)
u32("init_tag", "Initiator's tag", base.HEX)
u32("psn", "PSN", base.HEX)
u32("ack_req", "Next of the REQ lane", base.HEX)
u32("ack_rsp", "Next of the RSP lane", base.HEX)
u32("isn_req", "First of the REQ lane", base.HEX)
u32("isn_rsp", "First of the RSP lane", base.HEX)
u32("next_req", "Own next of the REQ lane", base.HEX)
u32("next_rsp", "Own next of the RSP lane", base.HEX)
u16("wnd_req", "Window of the REQ lane (segments)")
u16("wnd_rsp", "Window of the RSP lane (segments)")
u32("msn_lim", "Highest MSN of queue 0")
u32("err_psn", "PSN in error", base.HEX)
u8("sack_words_req", "SACK words of the REQ lane", base.DEC)
u8("sack_words_rsp", "SACK words of the RSP lane", base.DEC)
u16("ack_delay", "Delay of the acknowledgement (us)")
u32("sack", "SACK", base.HEX)
u32("sack_psn", "Received", base.HEX)
u16("max_seg", "Largest datagram (octets)")
u16("options", "Options", base.HEX)
f.option_credits = ProtoField.bool("etherwarp.options.credits", "Message credits", 16, nil, 0x8000)
f.option_atomics = ProtoField.bool("etherwarp.options.atomics", "Atomics", 16, nil, 0x4000)
f.option_no_crc = ProtoField.bool("etherwarp.options.no_crc", "No CRC wished", 16, nil, 0x2000)
u16("ird", "IRD")
u16("ord", "ORD")
u64("cookie", "Cookie")
u8("reason", "Reason", base.DEC, reset_reasons)
u16("seg_len", "Segment length")
u32("crc", "CRC32C", base.HEX)

flag("ddp.t", "T: tagged", 0x80)
flag("ddp.l", "L: last", 0x40)
u8("ddp.version", "DDP version", base.DEC, nil, 0x03)
u32("ddp.stag", "STag", base.HEX)
u64("ddp.to", "Tagged offset")
u32("ddp.rsvdulp", "Reserved for the ULP", base.HEX)
u32("ddp.qn", "Queue number")
u32("ddp.msn", "MSN")
u32("ddp.mo", "Message offset")
u8("rdmap.version", "RDMAP version", base.DEC, nil, 0xc0)
u8("rdmap.opcode", "Opcode", base.DEC, opcodes, 0x0f)
u32("rdmap.invalidate_stag", "STag to invalidate", base.HEX)
u32("rdmap.sink_stag", "Sink STag", base.HEX)
u64("rdmap.sink_to", "Sink tagged offset")
u32("rdmap.read_size", "Octets to read")
u32("rdmap.source_stag", "Source STag", base.HEX)
u64("rdmap.source_to", "Source tagged offset")
u8("rdmap.layer", "Layer", base.DEC, layers, 0xf0)
u8("rdmap.error_type", "Error type", base.DEC, nil, 0x0f)
u8("rdmap.error_code", "Error code", base.HEX)
flag("rdmap.m", "M: segment length valid", 0x80)
flag("rdmap.d", "D: DDP header included", 0x40)
flag("rdmap.r", "R: RDMAP header included", 0x20)
u16("rdmap.error_length", "Length of the segment in error")
u32("rdmap.atomic_operation", "Operation", base.DEC)
u32("rdmap.request_id", "Request")
u64("rdmap.data", "Add or swap data")
u64("rdmap.mask", "Add or swap mask")
u64("rdmap.compare", "Compare data")
u64("rdmap.compare_mask", "Compare mask")
u64("rdmap.original", "Original value")
u64("rdmap.immediate", "Immediate data")
f.payload = ProtoField.bytes("etherwarp.payload", "Payload")

local crc_bad = ProtoExpert.new("etherwarp.crc.bad", "CRC32C does not fit", expert.group.CHECKSUM, expert.severity.ERROR)
local rnr = ProtoExpert.new("etherwarp.rnr", "Receiver not ready", expert.group.SEQUENCE, expert.severity.NOTE)
local reported = ProtoExpert.new("etherwarp.error", "Error report", expert.group.SEQUENCE, expert.severity.WARN)
ew.experts = { crc_bad, rnr, reported }

-- CRC32C (Castagnoli), reflected; on the wire in the order of RFC 3720, least significant octet first.
local band, bxor, rshift = bit.band, bit.bxor, bit.rshift
local crc_table = {}
for i = 0, 255 do
  local c = i
  for _ = 1, 8 do
    c = band(c, 1) == 1 and bxor(rshift(c, 1), 0x82f63b78) or rshift(c, 1)
  end
  crc_table[i] = c
end

local function crc32c(octets)
  local c = 0xffffffff
  for i = 0, octets:len() - 1 do
    c = bxor(crc_table[band(bxor(c, octets:get_index(i)), 0xff)], rshift(c, 8))
  end
  return band(bxor(c, 0xffffffff), 0xffffffff) % 0x100000000
end

-- Walks over a header: each call takes the next octets as a field.
local function walker(tvb, tree, at)
  local w = { at = at }
  function w.take(field, n)
    local range = tvb(w.at, n)
    w.at = w.at + n
    tree:add(field, range)
    return range
  end
  function w.skip(n) w.at = w.at + n end
  return w
end

local function dissect_terminate(tvb, tree, at)
  local w = walker(tvb, tree, at)
  local first = w.take(f.rdmap_layer, 1):uint()
  tree:add(f.rdmap_error_type, tvb(at, 1))
  local code = w.take(f.rdmap_error_code, 1):uint()
  local bits = w.take(f.rdmap_m, 1):uint()
  tree:add(f.rdmap_d, tvb(at + 2, 1))
  tree:add(f.rdmap_r, tvb(at + 2, 1))
  w.skip(1)
  if band(bits, 0x80) ~= 0 and tvb:len() >= w.at + 2 then w.take(f.rdmap_error_length, 2) end
  return w.at, string.format("%d/%d/%02x", rshift(first, 4), band(first, 0x0f), code)
end

local dissect_segment

-- What follows the DDP header; returns text for the info column.
local function dissect_body(tvb, tree, at, opcode, pinfo)
  local left = tvb:len() - at
  local w = walker(tvb, tree, at)
  local text = ""
  if opcode == 1 and left >= 28 then
    w.take(f.rdmap_sink_stag, 4)
    w.take(f.rdmap_sink_to, 8)
    text = string.format(" %d octets", w.take(f.rdmap_read_size, 4):uint())
    w.take(f.rdmap_source_stag, 4)
    w.take(f.rdmap_source_to, 8)
  elseif opcode == 7 and left >= 4 then
    local control = tvb(at + 2, 1):uint()
    local error
    w.at, error = dissect_terminate(tvb, tree, at)
    text = " " .. error
    tree:add_proto_expert_info(reported, "Error report " .. error)
    if band(control, 0x40) ~= 0 and tvb:len() >= w.at + 14 then
      dissect_segment(tvb(w.at):tvb(), tree, nil, "Header in error")
      w.at = tvb:len()
    end
  elseif (opcode == 8 or opcode == 9) and left >= 8 then
    w.take(f.rdmap_immediate, 8)
  elseif opcode == 10 and left >= 52 then
    local operation = tvb(at, 4)
    tree:add(f.rdmap_atomic_operation, operation):append_text(
      " (" .. (atomic_operations[band(operation:uint(), 0x0f)] or "?") .. ")")
    w.skip(4)
    w.take(f.rdmap_request_id, 4)
    w.take(f.ddp_stag, 4)
    w.take(f.ddp_to, 8)
    w.take(f.rdmap_data, 8)
    w.take(f.rdmap_mask, 8)
    w.take(f.rdmap_compare, 8)
    w.take(f.rdmap_compare_mask, 8)
    text = " " .. (atomic_operations[band(operation:uint(), 0x0f)] or "?")
  elseif opcode == 11 and left >= 12 then
    w.take(f.rdmap_request_id, 4)
    w.take(f.rdmap_original, 8)
  end
  if w.at < tvb:len() then
    tree:add(f.payload, tvb(w.at)):append_text(string.format(" (%d octets)", tvb:len() - w.at))
    if text == "" then text = string.format(" %d octets", tvb:len() - w.at) end
  end
  return text
end

-- A DDP segment. pinfo nil: only its header is there.
dissect_segment = function(tvb, parent, pinfo, title)
  if tvb:len() < 14 then return "" end
  local first, control = tvb(0, 1):uint(), tvb(1, 1):uint()
  local opcode = band(control, 0x0f)
  local name = opcodes[opcode] or "unknown"
  local tree = parent:add(ew, tvb(), (title or "DDP segment") .. ", " .. name)
  tree:add(f.ddp_t, tvb(0, 1))
  tree:add(f.ddp_l, tvb(0, 1))
  tree:add(f.ddp_version, tvb(0, 1))
  tree:add(f.rdmap_version, tvb(1, 1))
  tree:add(f.rdmap_opcode, tvb(1, 1))
  local w = walker(tvb, tree, 2)
  local text
  if band(first, 0x80) ~= 0 then
    local stag = w.take(f.ddp_stag, 4):uint()
    local to = w.take(f.ddp_to, 8)
    text = string.format("%s STag 0x%08x TO 0x%s", name, stag, tostring(to:bytes()))
  else
    if tvb:len() < 18 then return name end
    w.take((opcode == 4 or opcode == 6) and f.rdmap_invalidate_stag or f.ddp_rsvdulp, 4)
    w.take(f.ddp_qn, 4)
    local msn = w.take(f.ddp_msn, 4):uint()
    local mo = w.take(f.ddp_mo, 4):uint()
    text = string.format("%s MSN %u%s", name, msn, mo > 0 and string.format(" MO %u", mo) or "")
  end
  if band(first, 0x40) == 0 then text = text .. " (more)" end
  if pinfo ~= nil then text = text .. dissect_body(tvb, tree, w.at, opcode, pinfo) end
  return text
end

-- The bits of SACK words: bit k, from the top, is the PSN after the next k. One list for each lane.
local function dissect_sack(tvb, tree, w, words, next_psn, lane)
  for n = 0, words - 1 do
    local range = tvb(w.at, 4)
    local item = tree:add(f.sack, range):append_text(" (" .. lane .. ")")
    for k = 0, 31 do
      if band(tvb(w.at + math.floor(k / 8), 1):uint(), rshift(0x80, k % 8)) ~= 0 then
        item:add(f.sack_psn, range, (next_psn + 1 + 32 * n + k) % 0x100000000)
      end
    end
    w.skip(4)
  end
end

-- The fields that RD_REQ, RD_RSP and RD_ACK begin with; returns the next PSNs of both lanes.
local function dissect_lanes(w)
  w.take(f.tag, 4)
  local psn = w.take(f.psn, 4):uint()
  local ack_req = w.take(f.ack_req, 4):uint()
  local ack_rsp = w.take(f.ack_rsp, 4):uint()
  w.take(f.wnd_req, 2)
  w.take(f.wnd_rsp, 2)
  w.take(f.msn_lim, 4)
  return psn, ack_req, ack_rsp
end

local function dissect_open(tvb, tree, w)
  w.take(f.tag, 4)
  w.take(f.init_tag, 4)
  w.take(f.qkey, 4)
  w.take(f.isn_req, 4)
  w.take(f.isn_rsp, 4)
  w.take(f.wnd_req, 2)
  w.take(f.wnd_rsp, 2)
  w.take(f.msn_lim, 4)
  w.take(f.max_seg, 2)
  local range = tvb(w.at, 2)
  local options = tree:add(f.options, range)
  for _, field in ipairs({ f.option_credits, f.option_atomics, f.option_no_crc }) do options:add(field, range) end
  w.skip(2)
  w.take(f.ird, 2)
  w.take(f.ord, 2)
  w.take(f.cookie, 8)
end

-- The fixed header behind the prefix, by type; returns text for the info column. w.at is behind it afterwards.
local function dissect_header(tvb, tree, w, kind, flags)
  if kind == 0 then
    w.take(f.qkey, 4)
  elseif kind == 1 then
    w.skip(4)
    w.take(f.err_msn, 4)
  elseif kind == 2 then
    w.take(f.qkey, 4)
    w.take(f.rec_msn, 4)
    w.take(f.rec_len, 4)
    w.take(f.rec_off, 4)
  elseif kind == 3 then
    w.take(f.trans_id, 4)
    local port = w.take(f.service_port, 2):uint()
    w.skip(2)
    return string.format(" port %d", port)
  elseif kind == 4 then
    w.take(f.trans_id, 4)
    local status = w.take(f.sidr_status, 1):uint()
    w.take(f.qpn, 3)
    w.take(f.qkey, 4)
    return " " .. (sidr_status[status] or "status " .. status)
  elseif kind == 8 or kind == 9 then
    return string.format(" PSN 0x%08x", (dissect_lanes(w)))
  elseif kind == 10 then
    local _, ack_req, ack_rsp = dissect_lanes(w)
    local words_req = w.take(f.sack_words_req, 1):uint()
    local words_rsp = w.take(f.sack_words_rsp, 1):uint()
    w.take(f.ack_delay, 2)
    local most = math.floor((tvb(2, 1):uint() * 4 - w.at) / 4)  -- a header may say more than it has
    words_req = math.min(words_req, most)
    dissect_sack(tvb, tree, w, words_req, ack_req, "REQ")
    dissect_sack(tvb, tree, w, math.min(words_rsp, most - words_req), ack_rsp, "RSP")
    return string.format(" REQ 0x%08x RSP 0x%08x", ack_req, ack_rsp)
  elseif kind == 11 or kind == 12 then
    dissect_open(tvb, tree, w)
    if kind == 12 and band(flags, 0x01) ~= 0 then return " cookie challenge" end
  elseif kind == 13 then
    w.take(f.tag, 4)
    w.take(f.next_req, 4)
    w.take(f.ack_req, 4)
    w.take(f.ack_rsp, 4)
    w.take(f.next_rsp, 4)
    w.take(f.reason, 1)
    w.skip(3)
    if band(flags, 0x01) ~= 0 then return " acknowledgement" end
  elseif kind == 14 then
    w.take(f.tag, 4)
    local reason = w.take(f.reason, 1):uint()
    w.skip(3)
    return " " .. (reset_reasons[reason] or "reason " .. reason)
  end
  return ""
end

local flag_fields = { f.flags_i, f.flags_n, f.flags_a, f.flags_e, f.flags_x, f.flags_f, f.flags_r, f.flags_k }

local function dissect_prefix(tvb, tree)
  tree:add(f.version, tvb(0, 1))
  tree:add(f.type, tvb(0, 1))
  local flags = tree:add(f.flags, tvb(1, 1))
  for _, field in ipairs(flag_fields) do flags:add(field, tvb(1, 1)) end
  tree:add(f.hlen, tvb(2, 1))
  tree:add(f.aux, tvb(3, 1))
  tree:add(f.dst_qpn, tvb(5, 3))
  tree:add(f.src_qpn, tvb(9, 3))
end

local function dissect_crc(tvb, tree, flags)
  local range = tvb(tvb:len() - 4, 4)
  local item = tree:add_le(f.crc, range)
  if band(flags, 0x40) ~= 0 then
    item:append_text(" (not computed)")
  elseif ew.prefs.check_crc and tvb:len() == tvb:reported_len() then
    local good = crc32c(tvb(0, tvb:len() - 4):bytes())
    if good ~= range:le_uint() then
      item:add_proto_expert_info(crc_bad, string.format("CRC32C does not fit: it should be 0x%08x", good))
    else
      item:append_text(" (good)")
    end
  end
end

-- Version, type and lengths must agree: little else on UDP will look like that.
local function has_the_form(tvb)
  local length = tvb:reported_len()
  if length < 20 or tvb:len() < 20 then return false end
  local first = tvb(0, 1):uint()
  local kind, header = band(first, 0x0f), tvb(2, 1):uint() * 4
  if rshift(first, 4) ~= 1 or base_words[kind] == nil or header < base_words[kind] * 4 then return false end
  if tvb(4, 1):uint() ~= 0 or tvb(8, 1):uint() ~= 0 then return false end
  if not has_segment[kind] then return header + 4 == length end
  return tvb:len() >= header + 2 and header + 6 + tvb(header, 2):uint() == length
end

function ew.dissector(tvb, pinfo, root)
  if not has_the_form(tvb) then return 0 end
  local kind, flags, header = band(tvb(0, 1):uint(), 0x0f), tvb(1, 1):uint(), tvb(2, 1):uint() * 4
  local tree = root:add(ew, tvb())
  pinfo.cols.protocol = "EtherWARP"
  dissect_prefix(tvb, tree)
  local w = walker(tvb, tree, 12)
  local info = types[kind] .. dissect_header(tvb, tree, w, kind, flags)
  -- Only RD_REQ and RD_RSP have F, only they and UD_SEND and UD_WREC have I.
  if (kind == 8 or kind == 9) and band(flags, 0x04) ~= 0 and w.at + 4 <= header then w.take(f.err_psn, 4) end
  if (kind == 0 or kind == 2 or kind == 8 or kind == 9) and band(flags, 0x80) ~= 0 and w.at + 4 <= header then
    w.take(f.imm, 4)
  end
  if kind == 10 and band(flags, 0x02) ~= 0 then tree:add_proto_expert_info(rnr) end
  if w.at < header then tree:add(f.extension, tvb(w.at, header - w.at)) end
  info = string.format("%s 0x%06x → 0x%06x", info, tvb(9, 3):uint(), tvb(5, 3):uint())
  if has_segment[kind] and tvb:len() == tvb:reported_len() then
    tree:add(f.seg_len, tvb(header, 2))
    local n = tvb(header, 2):uint()
    if n > 0 and (kind == 3 or kind == 4) then
      tree:add(f.private, tvb(header + 2, n))
    elseif n > 0 then
      info = info .. ": " .. dissect_segment(tvb(header + 2, n):tvb(), tree, pinfo)
    end
  end
  if tvb:len() == tvb:reported_len() then dissect_crc(tvb, tree, flags) end
  pinfo.cols.info = info
  tree:append_text(", " .. info)
  return tvb:len()
end

ew:register_heuristic("udp", function(tvb, pinfo, root) return ew.dissector(tvb, pinfo, root) > 0 end)
