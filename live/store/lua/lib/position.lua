-- The position of a board, or nil and the reply to a caller that is wrong about the board's clock.
local function current_position()
  local suffix = request.suffix
  local state = redis.call('HMGET', meta, 'epoch', 'offset', 'total' .. suffix, 'high' .. suffix, 'newest', 'latest')
  local newest, latest = tonumber(state[5]), tonumber(state[6])
  if state[1] and request.clock and not fits(request.clock, newest, nil) then return nil, replan(newest, latest) end
  return {
    epoch = state[1] or '', offset = state[2] or '0', count = redis.call('ZCARD', ranking),
    total = (state[3] or '0') .. (state[4] and '+' .. state[4] or ''),
  }
end
