#!lua flags=allow-oom
-- Opens a board: returns its epoch and the state of its clock.
-- KEYS meta, writers
-- Request: OpenRequest
-- Returns {epoch, shape, newest, span, bucket, now, latest, secret, ruled} as the board has them; newest is '' before the
--         first event, now and latest are milliseconds, latest is '' where no event time counts,
--         and ruled is '' if its rules have never changed
--         {'none'} — there is no board: create it
--         {'adopt', epoch} — the board is to have a journal, and has none: begin a journal
--         {'epoch', epoch} — the board has another epoch than it was created with; '' for none
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
set_clock(redis.call('HGET', meta, 'clock'))
local known = redis.call('HGETALL', writers)
for i = 1, #known, 2 do
  local sent = tonumber(string.match(known[i + 1], '%d+$'))
  if sent < seconds - request.idle then redis.call('HDEL', writers, known[i]) end
end
local state = redis.call('HMGET', meta, 'epoch', 'shape', 'newest', 'span', 'bucket', 'latest', 'secret', 'ruled')
local span = tonumber(state[4])
local bucket = math.floor(seconds / span) * span
return {state[1], state[2] or '', state[3] or '', digits(span), digits(bucket), digits(now), state[6] or '',
  state[7] or '', state[8] or ''}
