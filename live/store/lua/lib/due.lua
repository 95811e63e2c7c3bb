--@include clock
-- Returns nil when the oldest slot has left the window, and with `turns` also when the board has yet to move on to its
-- newest period. Otherwise returns the reply:
--         {'replan', ...} — the caller is wrong about the board's clock
--         {'idle', wait} — nothing is due; wait is the time until something can be due, in milliseconds, or -1 when that
--         depends on the next event
--         {'slot', start} — this slot is the oldest: call again with its store keys
local function not_due(board, turns)
  local plan = request.clock
  if not fits(plan, board.newest, nil) then return replan(board.newest, board.latest) end
  if turns and board.newest ~= plan.current then return end
  local oldest = redis.call('ZRANGE', slots, 0, 0)[1]
  if not oldest or not plan.current or tonumber(oldest) >= request.kept then
    return {'idle', not plan.by_event and plan.till and digits(plan.till - store_now) or '-1'}
  end
  if tonumber(oldest) ~= request.start then return {'slot', oldest} end
end
