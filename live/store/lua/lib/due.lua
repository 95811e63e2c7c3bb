-- Returns the reply when the caller is wrong about the board's clock, when nothing is due, or when the caller asks for
-- another slot than the oldest. Returns nil when the oldest slot has left the window, and with `turns` also when the
-- board has yet to move on to its newest period.
local function not_due(board, turns)
  local plan = request.clock
  if not fits(plan, board.newest, nil) then return replan(board.newest, board.latest) end
  if turns and board.newest ~= plan.current then return end
  local oldest = redis.call('ZRANGE', slots, 0, 0)[1]
  if not oldest or not plan.current or tonumber(oldest) >= request.kept then
    return {'idle', not plan.by_event and plan.till and digits(plan.till - now) or '-1'}
  end
  if tonumber(oldest) ~= request.start then return {'slot', oldest} end
end
