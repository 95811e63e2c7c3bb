#!lua flags=allow-oom
-- Subtracts some of the events that have left a sliding window, oldest first.
--
-- An event in the log has not been subtracted yet, so any number of processes may run this script at once.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] reached — hash: member, tag
-- KEYS[3] levels — sorted set: each score in the ranking
-- KEYS[4] meta — hash: the board's state
-- KEYS[5] slots — sorted set: the start of every slot, scored by itself
-- KEYS[6] slot — hash: the sum of each member's events
-- KEYS[7] log — sorted set: the events, scored by their time (ms)
-- KEYS[8] hidden — hash: the members without a rank
-- KEYS[9] taken — hash: see `add.lua`
-- KEYS[10] journal — stream: what SQL does not hold yet
-- Request: ExpireEventsRequest
-- Returns {'idle', wait} — nothing is due; wait is the time until something can be due, in milliseconds, or -1 when
--         that depends on the next event
--         {'moved', n} — the script subtracted n events: call it again
--         {'epoch', epoch} — the board has another epoch; '' if there is no board
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local ranking, reached, levels, meta, slots, slot, log, hidden, taken, journal = unpack(KEYS)
--@include clock
--@include reign
--@include board
--@include ranking
--@include journal
--@include subtract
--@include fields
local board, refusal = open_board()
if refusal then return refusal end
local window = request.window
if request.by_event then now = board.latest end

local due = now and call('ZRANGEBYSCORE', log, '-inf', digits(now - window), 'LIMIT', 0, request.count) or {}
if #due == 0 then
  if request.by_event then return {'idle', '-1'} end
  local first = call('ZRANGE', log, 0, 0, 'WITHSCORES')
  return {'idle', digits(first[2] and tonumber(first[2]) + window - now or window)}
end
told_from = now - window + 1
local index, members, values, counts, below = {}, {}, {}, {}, {}
for i = 1, #due do
  local amount, member = string.match(due[i], '^(-?%d+) (.*)$', 9)
  local at = index[member]
  if not at then
    at = #members + 1
    index[member], members[at], values[at], counts[at] = at, member, 0, 0
  end
  values[at], counts[at] = values[at] + tonumber(amount), counts[at] + 1
  local under = below_zero(tonumber(amount))
  if under > 0 then below[member] = (below[member] or 0) - under end
end

-- If a sum of zero is a score, `left` has how many events each member has left in the log.
local left = {}
for i = 1, zero_is_none and 0 or #members do
  left[members[i]] = tonumber(call('HGET', taken, '\0' .. members[i]) or 0) - counts[i]
end
local function stays(zeros)
  local found = {}
  for i, member in ipairs(zeros) do found[i] = left[member] > 0 end
  return found
end
local ranked = {key = ranking, reached = reached, levels = levels, suffix = ''}
local names, old, new = subtracted(ranked, members, values, stays)

announce(board)
local held, size = call('HMGET', slot, unpack(members)), call('HLEN', slot)
local kept, emptied = {}, {}
for i = 1, #members do
  local value = tonumber(held[i] or 0) - values[i]
  if held[i] then size = size - 1 end
  if value == 0 and (left[members[i]] or 0) <= 0 then
    emptied[#emptied + 1] = members[i]
  else
    size = size + 1
    kept[#kept + 1], kept[#kept + 2] = members[i], digits(value)
  end
end
if #kept > 0 then
  call('HSET', slot, unpack(kept))
  call('ZADD', slots, request.start, request.start)  -- the list lacks the slot if events canceled each other out
end
if #emptied > 0 then call('HDEL', slot, unpack(emptied)) end
for member, amount in pairs(below) do
  if call('HINCRBY', taken, member, digits(amount)) <= 0 then call('HDEL', taken, member) end
end
for member, count in pairs(left) do
  if count > 0 then
    call('HSET', taken, '\0' .. member, count)
  else
    call('HDEL', taken, '\0' .. member)
  end
end
put(ranked, board, members, names, old, new)
local last = call('ZSCORE', log, due[#due])
call('ZREM', log, unpack(due))
if size == 0 then call('ZREM', slots, request.start) end  -- the store may refuse HLEN here; see `put`
record_tags(board, granted)
if board.left then
  local offset, number = struct.unpack('>I5I3', due[#due])
  call('HSET', meta, 'left', string.format('%.0f %.0f %.0f %.0f', now, last, offset, number))
end
commit(board)
return {'moved', digits(#due)}
