-- Gives a board its life in the store, or says which life it has already, and where its clock stands.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] writers — hash: writer, "sequence offset seconds" of its last batch
-- ARGV[1] epoch — string: the epoch to be born with, if the board has none
-- ARGV[2] shape — string: the choices on which the meaning of what is stored depends
-- ARGV[3] idle — seconds: writers that have been silent for longer are forgotten
-- ARGV[4] span — seconds: length of a bucket of identities, if the board has none yet
-- ARGV[5] born — string: the epoch that the board was born with elsewhere; '' to give it its life here, if it has none
-- Returns {epoch, shape, newest, span, bucket, now, latest} as the board has them; newest is '' before the first event,
--         now and latest are milliseconds, latest is '' where no event time counts
--         {'epoch', epoch} — the board lives another life than the one it was born with; '' for none
--@include clock
local meta, writers = KEYS[1], KEYS[2]
local epoch, shape, idle, span, born = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]

local held = redis.call('HGET', meta, 'epoch')
if born ~= '' and held ~= born then return {'epoch', held or ''} end
if not held then
  redis.call('HSET', meta, 'epoch', epoch, 'shape', shape, 'offset', 0, 'total', 0, 'volume', 0)
end
redis.call('HSETNX', meta, 'span', span)
local state = redis.call('HMGET', meta, 'epoch', 'shape', 'newest', 'span', 'bucket', 'latest')
local known = redis.call('HGETALL', writers)
for i = 1, #known, 2 do
  if tonumber(string.match(known[i + 1], '%d+$')) < seconds - idle then redis.call('HDEL', writers, known[i]) end
end
span = tonumber(state[4])
local bucket = math.max(math.floor(seconds / span) * span, tonumber(state[5] or 0))
return {state[1], state[2] or '', state[3] or '', state[4], digits(bucket), digits(now), state[6] or ''}
