-- Gives a board its life in the store, or says which life it has already, and where its clock stands.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] writers — hash: writer, "sequence offset seconds" of its last batch
-- KEYS[3] slots — sorted set: start of every slot there is, scored by itself
-- ARGV[1] epoch — string: the epoch to be born with, if the board has none
-- ARGV[2] shape — string: the choices on which the meaning of what is stored depends
-- ARGV[3] idle — seconds: writers that have been silent for longer are forgotten
-- ARGV[4] span — seconds: length of a bucket of identities, if the board has none yet
-- ARGV[5] born — string: the epoch that the board was born with elsewhere; '' to give it its life here, if it has none
-- ARGV[6] secret — string: random bytes that key what is stored of voters, if the board has none yet
-- ARGV[7] votes — "1" when the board counts votes
-- Returns {epoch, shape, newest, span, bucket, now, latest, secret} as the board has them; newest is '' before the first
--         event, now and latest are milliseconds, latest is '' where no event time counts; secret is '' where an older
--         version has counted, so that what it stored of voters can't be told
--         {'epoch', epoch} — the board lives another life than the one it was born with; '' for none
--@include clock
local meta, writers, slots = KEYS[1], KEYS[2], KEYS[3]
local epoch, shape, idle, span, born = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local secret, votes = ARGV[6], ARGV[7]

local held = redis.call('HGET', meta, 'epoch')
if born ~= '' and held ~= born then return {'epoch', held or ''} end
if not held then
  redis.call('HSET', meta, 'epoch', epoch, 'shape', shape, 'offset', 0, 'total', 0, 'secret', secret)
elseif votes == '1' and redis.call('HEXISTS', meta, 'secret') == 0 and redis.call('ZCARD', slots) == 0 then
  redis.call('HSET', meta, 'secret', secret)  -- nobody can have voted yet
end
if redis.call('HEXISTS', meta, 'span') == 0 then redis.call('HSET', meta, 'span', span) end  -- full memory forbids HSETNX
local state = redis.call('HMGET', meta, 'epoch', 'shape', 'newest', 'span', 'bucket', 'latest', 'secret')
local known = redis.call('HGETALL', writers)
for i = 1, #known, 2 do
  if tonumber(string.match(known[i + 1], '%d+$')) < seconds - idle then redis.call('HDEL', writers, known[i]) end
end
span = tonumber(state[4])
local bucket = math.max(math.floor(seconds / span) * span, tonumber(state[5] or 0))
return {state[1], state[2] or '', state[3] or '', state[4], digits(bucket), digits(now), state[6] or '', state[7] or ''}
