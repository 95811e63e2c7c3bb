-- Returns {epoch, shape, newest, span, bucket, now, latest, secret} of a board that exists.
local function opened()
  local state = redis.call('HMGET', meta, 'epoch', 'shape', 'newest', 'span', 'bucket', 'latest', 'secret')
  local span = tonumber(state[4] or request.span)
  local bucket = math.max(math.floor(seconds / span) * span, tonumber(state[5] or 0))
  return {state[1], state[2] or '', state[3] or '', digits(span), digits(bucket), digits(now), state[6] or '',
    state[7] or ''}
end
