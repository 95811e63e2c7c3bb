#!lua
-- Begins the journal of a board that has data: the first entry is everything that the board holds, at one instant.
--
-- The script blocks the store for about a second per million members. It runs once in the life of a board.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] log — sorted set: the events of a sliding window, scored by their time (ms)
-- KEYS[4] entrants — hash: the registered members
-- KEYS[5] hidden — hash: the members without a rank
-- KEYS[6] journal — stream: what SQL does not hold yet
-- KEYS[7...] parts — for each slot, where the request says: slot, reached, metadata, votes; then the buckets of
--         identities
-- Request: AdoptRequest
-- Returns {'ok', offset}
--         {'slots'} — the slots or the buckets have changed: ask again with their store keys
--         {'epoch', epoch} — the board has another epoch; '' for none
local request = cmsgpack.unpack(ARGV[1])
local meta, slots, log, entrants, hidden, journal = unpack(KEYS, 1, 6)
--@include clock
--@include board
--@include journal
--@include same_slots
local board, refusal = open_board()
if refusal then return refusal end
local parts, starts, buckets = request.slots or {}, {}, request.buckets or {}
for i, part in ipairs(parts) do starts[i] = part.start end
if not same_slots(starts) or board.bucket ~= request.bucket then return {'slots'} end
if board.journal then return {'ok', digits(board.offset)} end

local held = {slots = {}, tables = {}, seen = {}}
local state = call('HMGET', meta, 'shape', 'secret', 'newest', 'latest', 'bucket', 'span')
for i, name in ipairs({'shape', 'secret', 'newest', 'latest', 'bucket', 'span'}) do held[name] = state[i] or '' end
local function table_at(suffix, first)
  local reached, metadata, votes = unpack(KEYS, first, first + 2)
  held.tables[#held.tables + 1] = {suffix, call('HGETALL', reached), call('HGETALL', metadata), call('HGETALL', votes)}
end
for i, part in ipairs(parts) do
  held.slots[i] = {part.start, call('HGETALL', KEYS[part.keys])}
  if request.tables or i == 1 then table_at(part.suffix, part.keys + 1) end
end
for i, start in ipairs(buckets) do
  held.seen[i] = {digits(start), call('SMEMBERS', KEYS[#KEYS - #buckets + i])}
end
held.log = call('ZRANGE', log, 0, -1, 'WITHSCORES')
held.entrants, held.hidden = call('HGETALL', entrants), call('HKEYS', hidden)

board.place, board.journal = digits(board.offset), '0-0 0 - 0 0'
local moment = digits(time[1] * 1000000 + time[2])  -- another one at this offset has a later id
append(board, board.place .. '-' .. moment, 'adopt', '-', 0, cmsgpack.pack(held))
call('HSET', meta, 'journal', board.journal)
return {'ok', board.place}
