#!lua flags=no-writes
-- Reads a piece of what a board holds under one store key, and which entry of the journal came last, at one instant.
-- With `whole`, it reads all of several store keys instead.
-- KEYS meta, slots, log
-- KEYS reached — hash: member, tag, of the ranking that is read; another store key if it has no tags
-- KEYS held — hash: name, value; or sorted set: name, score
-- KEYS leaving... — the slots that leave the window; with `whole`, more store keys that are read
-- Request: PieceRequest
-- Returns {'ok', offset, journal, newest, now, {event, ...}, {start, ...}, cursor, {name, value, ...}, {{value, ...}, ...}}
--         — journal is the last entry and the size of the journal, '' for none; newest is the newest slot, '' for none;
--         now is the time by the board's clock in milliseconds; the events have left a sliding window, and wait to be
--         subtracted; then follow the starts of all slots; the cursor of the next piece is '0' at the end; a value is
--         nil for a name that is not there; then follows what each slot that leaves the window holds of these members.
--         With `whole`, the names and values of each store key follow the starts
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'due', count} — more events than `most_due` wait to be subtracted
--@include clock
local TAG = 14  -- bytes of a tag in the name of a record
local call = redis.call
local epoch, offset, last, newest, latest, clock =
  unpack(call('HMGET', meta, 'epoch', 'offset', 'journal', 'newest', 'latest', 'clock'))
set_clock(clock)
if epoch ~= request.epoch then return {'epoch', epoch or ''} end
if request.by_event then now = tonumber(latest or 0) end

local due = {}
if request.window then
  local till = digits(now - request.window)
  due = call('ZRANGEBYSCORE', log, '-inf', till, 'LIMIT', 0, request.most_due + 1)
  if #due > request.most_due then return {'due', call('ZCOUNT', log, '-inf', till)} end
end
local reply = {'ok', offset or '0', last or '', newest or '', digits(now), due, call('ZRANGE', slots, 0, -1)}

if request.whole then
  local all = {}
  for i = 5, #KEYS do
    local is_sorted = call('TYPE', KEYS[i]).ok == 'zset'
    all[i - 4] = is_sorted and call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES') or call('HGETALL', KEYS[i])
  end
  reply[8] = all
  return reply
end

local cursor, found, members = '0', {}, request.names
if members then
  local names = members
  if request.tagged then
    names = call('HMGET', reached, unpack(members))
    for i, member in ipairs(members) do names[i] = (names[i] or string.rep('\0', TAG)) .. member end
  end
  local values = call(request.sorted and 'ZMSCORE' or 'HMGET', held, unpack(names))
  for i, name in ipairs(names) do found[2 * i - 1], found[2 * i] = name, values[i] end
else
  local scan = call(request.sorted and 'ZSCAN' or 'HSCAN', held, request.cursor, 'COUNT', request.count)
  cursor, found, members = scan[1], scan[2], {}
  for i = 1, #found, 2 do
    members[#members + 1] = request.tagged and string.sub(found[i], TAG + 1) or found[i]
  end
end
local others = {}
for key = 6, #members > 0 and #KEYS or 0 do others[key - 5] = call('HMGET', KEYS[key], unpack(members)) end
reply[8], reply[9], reply[10] = cursor, found, others
return reply
