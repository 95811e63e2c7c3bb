-- Returns the position of a board. If the caller is wrong about the board's clock, or nobody has checked the board,
-- returns nil and the reply.
local function current_position()
  local suffix = request.suffix
  local state = redis.call('HMGET', meta, 'epoch', 'offset', 'total' .. suffix, 'high' .. suffix, 'newest', 'latest',
    'reign')
  local newest, latest = tonumber(state[5]), tonumber(state[6])
  local refused = unchecked(state[7])
  if refused then return nil, refused end
  if state[1] and request.clock and not fits(request.clock, newest, nil) then return nil, replan(newest, latest) end
  return {
    epoch = state[1] and shown(state[1], state[7]) or '', offset = state[2] or '0', count = redis.call('ZCARD', ranking),
    total = (state[3] or '0') .. (state[4] and '+' .. state[4] or ''),
  }
end
