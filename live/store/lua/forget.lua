#!lua flags=allow-oom
-- Deletes everything that a board has of a member, as if it had never been counted, and records that in its journal.
--
-- The journal receives a digest of the member. When somebody computes from the journal what the board held, this entry
-- deletes the member. A sliding window is searched event by event: a million events block the store for about half a
-- second.
-- KEYS meta, slots, journal, log, taken, entrants, hidden, baseline
-- KEYS parts... — see `rankings_of`
-- Request: ForgetRequest
-- Returns {'ok', offset}
--         {'last'} — the journal has other entries by now
local rules = request.rules
--@include ranking
--@include journal
--@include rankings
--@include opened
local starts = request.starts or {}
if not same_slots(starts) then return {'slots'} end
if request.last and request.last ~= link_of(board) then return {'last'} end
local member, votes = request.member, request.votes or {}

local gone, first, step = {}, 0, 1000  -- read the log before anything is written; see `put`
local found = call('ZRANGE', log, first, first + step - 1)
while #found > 0 do
  for _, event in ipairs(found) do
    if string.match(event, '^-?%d+ (.*)$', 9) == member then gone[#gone + 1] = event end
  end
  first = first + step
  found = #found == step and call('ZRANGE', log, first, first + step - 1) or {}
end
local marks, changed = cmsgpack.unpack(call('HGET', baseline, 'marks') or cmsgpack.pack({})), {}
local digest = tonumber(string.sub(redis.sha1hex(member), 1, 8), 16)
digest = digest - digest % 2
for _, mark in ipairs(marks) do
  local rows, kept = cmsgpack.unpack(call('HGET', baseline, 'rows:' .. mark.id)), {}
  for i = 1, #rows, 2 do
    if rows[i] ~= member then kept[#kept + 1], kept[#kept + 2] = rows[i], rows[i + 1] end
  end
  if #kept < #rows then
    mark.ranked, mark.known = mark.ranked - 1, mark.known - 1
    changed[#changed + 1], changed[#changed + 2] = 'rows:' .. mark.id, cmsgpack.pack(kept)
  end
  local deep = call('HGET', baseline, 'deep:' .. mark.id)
  for tie = 0, 1 do
    local name, from, found = struct.pack('>I4', digest + tie), 1, deep or nil
    while found do
      found = string.find(deep, name, from, true)
      if found and found % 4 == 1 then
        deep = string.sub(deep, 1, found - 1) .. struct.pack('>I4', tie) .. string.sub(deep, found + 4)
        changed[#changed + 1], changed[#changed + 2] = 'deep:' .. mark.id, deep
      end
      from = (found or 0) + 1
    end
  end
end

-- Calls a command with many names, step by step, because `unpack` takes only a few thousand at once.
local function each(command, key, names)
  for i = 1, #names, step do call(command, key, unpack(names, i, math.min(i + step - 1, #names))) end
end

announce(board)
record(board, 'forget', nil, nil, request.entry)
for _, ranking in ipairs(rankings_of(KEYS, 9, starts, request.tables)) do
  local names, old = look_up(ranking, {member})
  put(ranking, board, {member}, names, old, {})
  call('HDEL', ranking.metadata, member)
  each('HDEL', ranking.votes, votes)
  for _, slot in ipairs(ranking.slots) do call('HDEL', slot, member) end
end
each('ZREM', log, gone)
call('HDEL', taken, member, '\0' .. member)
call('HDEL', entrants, member)
call('HDEL', hidden, member)
if #changed > 0 then call('HSET', baseline, 'marks', cmsgpack.pack(marks), unpack(changed)) end
return {'ok', commit(board)}
