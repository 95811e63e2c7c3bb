#!lua flags=allow-oom
-- Deletes everything that a board has of a member, as if it had never been counted, and records that in its journal.
--
-- The journal receives a digest of the member. When somebody computes from the journal what the board held, this entry
-- deletes the member. A sliding window is searched event by event: a million events block the store for about half a
-- second.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: the start of every slot, scored by itself
-- KEYS[3] journal — stream: what SQL does not hold yet
-- KEYS[4] log — sorted set: the events of a sliding window
-- KEYS[5] taken — hash: see `add.lua`
-- KEYS[6] entrants — hash: registered members, JSON
-- KEYS[7] hidden — hash: the members without a rank
-- KEYS[8] baseline — hash: what the ranking was like at earlier times; see `baseline.lua`
-- KEYS[9...] parts — for each slot, at the indexes in the request: slot, ranking, reached, levels, metadata, votes
-- Request: ForgetRequest
-- Returns {'ok', offset}
--         {'slots'} — the slots have changed: ask again with their new store keys
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, slots, journal, log, taken, entrants, hidden, baseline = unpack(KEYS, 1, 8)
--@include clock
--@include reign
--@include board
--@include ranking
--@include journal
--@include same_slots
local board, refusal = open_board()
if refusal then return refusal end
local parts, starts = request.slots or {}, {}
for i, part in ipairs(parts) do starts[i] = part.start end
if not same_slots(starts) then return {'slots'} end
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
local done = {}
for _, part in ipairs(parts) do
  local ranking, slot, voters = {suffix = part.suffix}, nil, nil
  slot, ranking.key, ranking.reached, ranking.levels, ranking.metadata, voters =
    unpack(KEYS, part.keys, part.keys + 5)
  if not done[part.suffix] then
    done[part.suffix] = true
    local names, old = look_up(ranking, {member})
    put(ranking, board, {member}, names, old, {})
    call('HDEL', ranking.metadata, member)
    each('HDEL', voters, votes)
  end
  call('HDEL', slot, member)
end
each('ZREM', log, gone)
call('HDEL', taken, member, '\0' .. member)
call('HDEL', entrants, member)
call('HDEL', hidden, member)
if #changed > 0 then call('HSET', baseline, 'marks', cmsgpack.pack(marks), unpack(changed)) end
return {'ok', commit(board)}
