#!lua flags=allow-oom
-- Subtracts some of the events that have left a sliding window, oldest first.
--
-- An event that is still in the log has not been subtracted; any number of processes may do this at once.
-- KEYS[1] ranking — sorted set: name, score
-- KEYS[2] reached — hash: member, tag
-- KEYS[3] levels — sorted set: each score there is
-- KEYS[4] meta — hash: the board's state
-- KEYS[5] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[6] slot — hash: the sum of each member's events
-- KEYS[7] log — sorted set: the events, scored by their time (ms)
-- KEYS[8] hidden — hash: members that have no rank
-- KEYS[9] taken — hash: member, sum of its amounts in the log that are below zero, without the sign
-- ARGV[1] epoch — string: the epoch that the caller knows
-- ARGV[2] clock — "server" or "event"
-- ARGV[3] window — milliseconds: length of the window
-- ARGV[4] count — integer: most events to subtract
-- ARGV[5] channel — string: where the change is announced
-- ARGV[6] ties — "key", or "rising" or "falling" where names have tags
-- ARGV[7] ranks — "dense" to keep the levels
-- ARGV[8] start — seconds: start of KEYS[6]
-- Returns {'idle', wait} — nothing is due; wait is milliseconds until something can be, -1 when only an event can tell
--         {'moved', n} — n events were subtracted; call again
--         {'epoch', epoch} — the board lives another life; '' for none
--@include clock
local ranking, reached, levels, meta, slots, slot, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local hidden, taken = KEYS[8], KEYS[9]
local epoch, clock, window, count, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local ties, ranks, start = ARGV[6], ARGV[7], ARGV[8]

local state = redis.call('HMGET', meta, 'epoch', 'latest', 'offset')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end
if clock == 'event' then now = tonumber(state[2]) end

local due = now and redis.call('ZRANGEBYSCORE', log, '-inf', digits(now - window), 'LIMIT', 0, count) or {}
if #due == 0 then
  local first = redis.call('ZRANGE', log, 0, 0, 'WITHSCORES')
  if clock == 'event' then return {'idle', '-1'} end
  return {'idle', digits(first[2] and tonumber(first[2]) + window - now or window)}
end
local index, members, values, below = {}, {}, {}, {}
for i = 1, #due do
  local amount, member = string.match(due[i], '^(-?%d+) (.*)$', 9)
  local at = index[member]
  if not at then
    at = #members + 1
    index[member], members[at], values[at] = at, member, 0
  end
  values[at] = values[at] + tonumber(amount)
  if tonumber(amount) < 0 then below[member] = (below[member] or 0) + tonumber(amount) end
end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local offset = digits(tonumber(state[3]) + 1)
redis.call('PUBLISH', channel, epoch .. ':' .. offset)
local held = redis.call('HMGET', slot, unpack(members))
local kept, emptied = {}, {}
for i = 1, #members do
  local value = tonumber(held[i] or 0) - values[i]
  if value == 0 then
    emptied[#emptied + 1] = members[i]
  else
    kept[#kept + 1] = members[i]
    kept[#kept + 1] = digits(value)
  end
end
if #kept > 0 then redis.call('HSET', slot, unpack(kept)) end
if #emptied > 0 then redis.call('HDEL', slot, unpack(emptied)) end
for member, amount in pairs(below) do
  if redis.call('HINCRBY', taken, member, digits(amount)) <= 0 then redis.call('HDEL', taken, member) end
end
--@include total
--@include subtract
subtract(members, values)
redis.call('ZREM', log, unpack(due))
if redis.call('EXISTS', slot) == 0 then redis.call('ZREM', slots, start) end
redis.call('HSET', meta, 'offset', offset)
return {'moved', digits(#due)}
