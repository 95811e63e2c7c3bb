#!lua
-- Begins the journal of a board that has data: the first entry is everything that the board holds, at one instant.
--
-- The script blocks the store for about a second per million members. If the journal has begun before, it begins again
-- only if the request says so, and if the last entry in the stream does not have everything that the board holds. After a loss, `parent` in the board's state
-- names the epoch that the new epoch continues, until the journal of the new epoch has begun.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] log — sorted set: the events of a sliding window, scored by their time (ms)
-- KEYS[4] entrants — hash: the registered members
-- KEYS[5] hidden — hash: the members without a rank
-- KEYS[6] journal — stream: what SQL does not hold yet
-- KEYS[7...] parts — the request has the indexes of these keys:
--         for each slot: slot, reached, metadata and votes;
--         if there is no slot: reached, metadata and votes of the only ranking;
--         then the buckets of identities
-- Request: AdoptRequest
-- Returns {'ok', id} — the id of the new entry, or of an earlier entry that is enough; '' if the journal had begun, and
--         need not begin again
--         {'slots'} — the slots or the buckets have changed: ask again with their store keys
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, slots, log, entrants, hidden, journal = unpack(KEYS, 1, 6)
--@include clock
--@include reign
--@include board
--@include journal
--@include same_slots
local board, refusal = open_board()
if refusal then return refusal end
local parts, starts, buckets = request.slots or {}, {}, request.buckets or {}
for i, part in ipairs(parts) do starts[i] = part.start end
if not same_slots(starts) or board.bucket ~= request.bucket then return {'slots'} end
if board.journal then
  if not request.again then return {'ok', ''} end
  local last = call('XREVRANGE', journal, '+', '-', 'COUNT', 1)[1]
  if last and string.find(last[2][2], 'adopt ', 1, true) == 1 then return {'ok', last[1]} end
end

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
if #parts == 0 and not request.tables then table_at('', 7) end
for i, start in ipairs(buckets) do
  held.seen[i] = {digits(start), call('SMEMBERS', KEYS[#KEYS - #buckets + i])}
end
held.log = call('ZRANGE', log, 0, -1, 'WITHSCORES')
held.entrants, held.hidden = call('HGETALL', entrants), call('HKEYS', hidden)

local parent, link = string.match(call('HGET', meta, 'parent') or '', '^(%S+) (.*)$')
held.parent = parent or ''
board.journal = board.journal or (link or '0-0 0 - 0') .. ' 0'
-- The id ends with the time, because another entry at the same offset needs a higher id.
local id = digits(board.offset) .. '-' .. digits(time[1] * 1000000 + time[2])
append(board, id, 'adopt', '-', 0, cmsgpack.pack(held))
call('HSET', meta, 'journal', board.journal)
if board.left then call('HSET', meta, 'left', NONE_LEFT) end  -- the entry lacks events that have left
call('HDEL', meta, 'parent')
return {'ok', id}
