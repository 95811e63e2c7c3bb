--@include clock
--@include reign
-- Returns the position of a board. If the caller is wrong about the board's clock or rules, or nobody has checked the
-- board, returns nil and the reply.
local function current_position()
  local suffix, plan = request.view.suffix, request.view.clock
  local state = redis.call('HMGET', meta, 'epoch', 'offset', 'total' .. suffix, 'high' .. suffix, 'newest', 'latest',
    'reign', 'clock', 'edition', 'ruled')
  local newest, latest = tonumber(state[5]), tonumber(state[6])
  set_clock(state[8])
  local refused = unchecked(state[7])
  if refused then return nil, refused end
  if state[1] and (request.ruled or false) ~= state[10] then return nil, {'ruled'} end
  if state[1] and plan and not fits(plan, newest, nil) then return nil, replan(newest, latest) end
  return {
    epoch = state[1] and shown(state[1], state[7], state[9]) or '', offset = state[2] or '0',
    count = redis.call('ZCARD', ranking),
    total = (state[3] or '0') .. (state[4] and '+' .. state[4] or ''),
  }
end
