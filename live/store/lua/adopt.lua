#!lua
-- Begins the journal of a board that has data: the first entry is everything that the board holds, at one instant.
--
-- The script blocks the store for about a second per million members. If the journal has begun before, it begins again
-- only if the request says so, and if the last entry in the stream does not have everything that the board holds. After a loss, `parent` in the board's state
-- names the epoch that the new epoch continues, until the journal of the new epoch has begun.
-- KEYS meta, slots, log, entrants, hidden, journal
-- KEYS parts... — see `rankings_of`; then the buckets of identities
-- Request: AdoptRequest
-- Returns {'ok', id} — the id of the new entry, or of an earlier entry that is enough; '' if the journal had begun, and
--         need not begin again
--         {'slots'} — the slots or the buckets have changed: ask again with their store keys
--@include journal
--@include rankings
--@include opened
local starts, buckets = request.starts or {}, request.buckets or {}
if not same_slots(starts) or board.bucket ~= request.bucket then return {'slots'} end
if board.journal then
  if not request.again then return {'ok', ''} end
  local last = call('XREVRANGE', journal, '+', '-', 'COUNT', 1)[1]
  if last and string.find(last[2][2], 'adopt ', 1, true) == 1 then return {'ok', last[1]} end
end

local held = {slots = {}, tables = {}, seen = {}}
for _, name in ipairs({'shape', 'secret', 'newest', 'latest', 'bucket', 'span', 'edition'}) do
  held[name] = call('HGET', meta, name) or ''
end
for i, start in ipairs(starts) do held.slots[i] = {start, call('HGETALL', KEYS[6 + i])} end
for i, ranking in ipairs(rankings_of(KEYS, 7, starts, request.tables)) do
  local reached, metadata = call('HGETALL', ranking.reached), call('HGETALL', ranking.metadata)
  held.tables[i] = {ranking.suffix, reached, metadata, call('HGETALL', ranking.votes)}
end
for i, start in ipairs(buckets) do
  held.seen[i] = {digits(start), call('SMEMBERS', KEYS[#KEYS - #buckets + i])}
end
held.log = call('ZRANGE', log, 0, -1, 'WITHSCORES')
held.entrants, held.hidden = call('HGETALL', entrants), call('HKEYS', hidden)

local parent, link = string.match(call('HGET', meta, 'parent') or '', '^(%S+) (.*)$')
held.parent = parent or ''
board.journal = board.journal or (link or '0-0 0 - 0') .. ' 0'
-- The id ends with the time, because another entry at the same offset needs a higher id, even if the clock stands still.
set_clock((tonumber(board.clock) or 0) + 1)
local place = digits(board.offset)
local id = place .. '-' .. digits(micros)
call('SPUBLISH', channel, board.epoch .. ':' .. place)  -- so that the entry moves to SQL at once
append(board, id, 'adopt', '-', 0, cmsgpack.pack(held))
call('HSET', meta, 'journal', board.journal, 'clock', digits(micros))
call('HDEL', meta, 'parent')
return {'ok', id}
