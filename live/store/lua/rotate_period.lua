#!lua flags=allow-oom
-- Turns a calendar board to its newest period, and drops one period that is kept no longer, whole.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] slots — sorted set: start of every slot there is, scored by itself
-- KEYS[3...] old — all keys of the period to drop
-- ARGV[1] epoch — string: the epoch that the caller knows
-- ARGV[2] clock — "server" or "event"
-- ARGV[3] current — seconds: the board's newest period by the caller; '' for none yet
-- ARGV[4] till — milliseconds: the end of that period
-- ARGV[5] kept — seconds: start of the oldest period that is kept
-- ARGV[6] start — seconds: start of the period to drop; '' when the caller does not know the oldest
-- ARGV[7] channel — string: where the change is announced
-- Returns {'idle', wait} — nothing is due; wait is milliseconds until something can be, -1 when only an event can tell
--         {'slot', start} — this period is the oldest: call again with its keys
--         {'moved'} — call again
--         {'epoch', epoch} — the board lives another life; '' for none
--         {'replan', newest, now, latest} — the caller is wrong about the board's clock
--@include clock
local meta, slots = KEYS[1], KEYS[2]
local epoch, clock, current, till, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local start, channel = ARGV[6], ARGV[7]

local state = redis.call('HMGET', meta, 'epoch', 'newest', 'offset', 'latest')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end
local newest = state[2] or ''
if not fits(clock, current, newest, nil, till) then return {'replan', newest, digits(now), state[4] or ''} end

local oldest = redis.call('ZRANGE', slots, 0, 0)[1]
local due = oldest and current ~= '' and tonumber(oldest) < kept
if newest == current and not due then
  return {'idle', clock == 'server' and digits(tonumber(till) - now) or '-1'}
end
if newest == current and oldest ~= start then return {'slot', oldest} end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local offset = digits(tonumber(state[3]) + 1)
redis.call('PUBLISH', channel, epoch .. ':' .. offset)
if newest ~= current then
  redis.call('HSET', meta, 'newest', current, 'offset', offset)
else
  for i = 3, #KEYS do redis.call('UNLINK', KEYS[i]) end
  redis.call('ZREM', slots, start)
  redis.call('HDEL', meta, 'total:' .. start, 'high:' .. start, 'volume:' .. start)
  redis.call('HSET', meta, 'offset', offset)
end
return {'moved'}
