-- Registers a key for a contest, or gives it other metadata; or takes one out that has no vote.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] entrants — hash: member, JSON
-- KEYS[3] ranking — sorted set: name, score, of the newest period
-- KEYS[4] reached — hash: member, tag
-- ARGV[1] epoch — string: the epoch that the caller knows
-- ARGV[2] member — string: the key
-- ARGV[3] metadata — string: JSON; '' to take it out
-- ARGV[4] channel — string: where the change is announced
-- ARGV[5] ties — "key", or "rising" or "falling" where names have tags
-- ARGV[6] most — integer: how many keys may be registered
-- Returns {'ok', offset, new} — new is 1 when the key was not registered before, or when it was and is no more
--         {'voted'} — a key that has votes stays
--         {'full'} — as many keys are registered as may be
--         {'epoch', epoch} — the board lives another life; '' for none
local meta, entrants, ranking, reached = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local epoch, member, metadata, channel, ties, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

local state = redis.call('HMGET', meta, 'epoch', 'offset')
if state[1] ~= epoch then return {'epoch', state[1] or ''} end

local held = redis.call('HGET', entrants, member)
if metadata == '' then
  local name = ties == 'key' and member or (redis.call('HGET', reached, member) or '') .. member
  if redis.call('ZSCORE', ranking, name) then return {'voted'} end
end
if (held or '') == metadata then return {'ok', state[2], 0} end
if not held and redis.call('HLEN', entrants) >= most then return {'full'} end

-- Announced first, for it could be forbidden; subscribers hear of it when the script has ended.
local offset = string.format('%.0f', tonumber(state[2]) + 1)
redis.call('PUBLISH', channel, epoch .. ':' .. offset)
if metadata == '' then
  redis.call('HDEL', entrants, member)  -- first, for when memory is full only what frees some may come first
else
  redis.call('HSET', entrants, member, metadata)
end
redis.call('HSET', meta, 'offset', offset)
return {'ok', offset, (held == false or metadata == '') and 1 or 0}
