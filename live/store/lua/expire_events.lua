#!lua flags=allow-oom
-- Subtracts some of the events that have left a sliding window, oldest first.
--
-- An event in the log has not been subtracted yet, so any number of processes may run this script at once.
-- KEYS ranking, reached, levels, meta, slots
-- KEYS slot — hash: the sum of each member's events
-- KEYS log, hidden, taken, journal
-- Request: ExpireEventsRequest
-- Returns {'idle', wait} — nothing is due; wait is the time until something can be due, in milliseconds, or -1 when
--         that depends on the next event
--         {'moved', n} — the script subtracted n events: call it again
--@include journal
local rules = request.rules
--@include subtract
--@include fields
--@include ruled
local window = request.window
if request.by_event then now = board.latest end

local due = now and call('ZRANGEBYSCORE', log, '-inf', digits(now - window), 'LIMIT', 0, request.count) or {}
if #due == 0 then
  if request.by_event then return {'idle', '-1'} end
  local first = call('ZRANGE', log, 0, 0, 'WITHSCORES')
  return {'idle', digits(first[2] and tonumber(first[2]) + window - store_now or window)}
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
call('ZREM', log, unpack(due))
if size == 0 then call('ZREM', slots, request.start) end  -- the store may refuse HLEN here; see `put`
record_tags(board, granted)
commit(board)
return {'moved', digits(#due)}
