#!lua flags=no-writes
-- Reads a piece of what a board holds under one store key, and which entry of the journal came last, at one instant.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] log — sorted set: the events of a sliding window, scored by their time (ms)
-- KEYS[4] held — hash: name, value; or sorted set: name, score
-- Request: PieceRequest
-- Returns {'ok', offset, journal, newest, now, cursor, {name, value, ...}, {event, ...}, {start, ...}, left} — journal is
--         the last entry and the size of the journal, '' for none; newest is the newest slot, '' for none; now is the
--         time by the board's clock in milliseconds; the cursor of the next piece is '0' at the end; a value is nil for
--         a name that is not there; the events have left a sliding window, and wait to be subtracted; then follow the
--         starts of all slots; left is the field of that name, '' for none: see `lib/journal`
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'due', count} — more events than `most_due` wait to be subtracted
local request = cmsgpack.unpack(ARGV[1])
local meta, slots, log, held = unpack(KEYS)
--@include clock
local call = redis.call
local epoch, offset, last, newest, latest, left =
  unpack(call('HMGET', meta, 'epoch', 'offset', 'journal', 'newest', 'latest', 'left'))
if epoch ~= request.epoch then return {'epoch', epoch or ''} end
if request.by_event then now = tonumber(latest or 0) end

local due = {}
if request.window then
  local till = digits(now - request.window)
  due = call('ZRANGEBYSCORE', log, '-inf', till, 'LIMIT', 0, request.most_due + 1)
  if #due > request.most_due then return {'due', call('ZCOUNT', log, '-inf', till)} end
end

local cursor, found = '0', {}
if request.names then
  local values = call(request.sorted and 'ZMSCORE' or 'HMGET', held, unpack(request.names))
  for i, name in ipairs(request.names) do found[2 * i - 1], found[2 * i] = name, values[i] end
else
  local scan = call(request.sorted and 'ZSCAN' or 'HSCAN', held, request.cursor, 'COUNT', request.count)
  cursor, found = scan[1], scan[2]
end
return {'ok', offset or '0', last or '', newest or '', digits(now), cursor, found, due, call('ZRANGE', slots, 0, -1),
  left or ''}
