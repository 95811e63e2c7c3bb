-- Gives a board its life in the store, or says which life it has already, and where its clock stands.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] writers — hash: writer, "sequence offset seconds" of its last batch
-- ARGV[1] epoch — string: the epoch to be born with, if the board has none
-- ARGV[2] slot — seconds: length of a slot
-- ARGV[3] clock — "server" or "event"
-- ARGV[4] idle — seconds: writers that have been silent for longer are forgotten
-- ARGV[5] span — seconds: length of a bucket of identities, if the board has none yet
-- Returns {epoch, slot, clock, newest, span, bucket} as the board has them; newest is '' while an event clock has seen
--         no event
local meta, writers = KEYS[1], KEYS[2]
local epoch, slot, clock, idle, span = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local seconds = tonumber(redis.call('TIME')[1])

if redis.call('EXISTS', meta) == 0 then
  redis.call('HSET', meta, 'epoch', epoch, 'slot', slot, 'clock', clock, 'offset', 0, 'total', 0, 'volume', 0)
end
redis.call('HSETNX', meta, 'span', span)
local state = redis.call('HMGET', meta, 'epoch', 'slot', 'clock', 'newest', 'span', 'bucket')
local newest = state[4] or ''
if clock == 'server' then
  local current = math.floor(seconds / tonumber(slot)) * tonumber(slot)
  if newest == '' or current > tonumber(newest) then newest = string.format('%.0f', current) end
end
local known = redis.call('HGETALL', writers)
for i = 1, #known, 2 do
  if tonumber(string.match(known[i + 1], '%d+$')) < seconds - idle then redis.call('HDEL', writers, known[i]) end
end
span = tonumber(state[5])
local bucket = math.max(math.floor(seconds / span) * span, tonumber(state[6] or 0))
return {state[1], state[2], state[3], newest, state[5], string.format('%.0f', bucket)}
