#!lua flags=allow-oom
-- Opens a board: returns its epoch and the state of its clock.
-- KEYS[1] meta — hash: the board's state
-- KEYS[2] writers — hash: writer, "sequence offset seconds" of its last batch
-- Request: OpenRequest
-- Returns {epoch, shape, newest, span, bucket, now, latest, secret} as the board has them; newest is '' before the
--         first event, now and latest are milliseconds, latest is '' where no event time counts
--         {'none'} — there is no board: create it
--         {'adopt', epoch} — the board is to have a journal, and has none: begin a journal
--         {'epoch', epoch} — the board has another epoch than it was created with; '' for none
--         {'reign', offset, link, epoch, resending} — nobody has checked the board after a failover; see `lib/reign`
local request = cmsgpack.unpack(ARGV[1])
local reign = ARGV[2] or ''
local meta, writers = unpack(KEYS)
--@include reign
--@include clock
local held, born = redis.call('HGET', meta, 'epoch'), request.born
if born and held ~= born then return {'epoch', held or ''} end
if not held then return {'none'} end
if request.journal and redis.call('HEXISTS', meta, 'journal') == 0 then
  local refused = unchecked(redis.call('HGET', meta, 'reign'))
  if refused then return {'reign', refused[2], '', held, ''} end  -- until the check, nobody can say which entries SQL lacks
  return {'adopt', held}
end
redis.call('HSETNX', meta, 'span', request.span)
local known = redis.call('HGETALL', writers)
for i = 1, #known, 2 do
  local sent = tonumber(string.match(known[i + 1], '%d+$'))
  if sent < seconds - request.idle then redis.call('HDEL', writers, known[i]) end
end
local state = redis.call('HMGET', meta, 'epoch', 'shape', 'newest', 'span', 'bucket', 'latest', 'secret')
local span = tonumber(state[4])
local bucket = math.max(math.floor(seconds / span) * span, tonumber(state[5] or 0))
return {state[1], state[2] or '', state[3] or '', digits(span), digits(bucket), digits(now), state[6] or '',
  state[7] or ''}
