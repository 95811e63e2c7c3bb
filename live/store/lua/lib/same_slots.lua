-- Whether the slots of the board start where the caller believes. If they do not, a script returns
--         {'slots'} — the slots have changed: ask again with their new store keys
local function same_slots(starts)
  local held = redis.call('ZRANGE', slots, 0, -1)
  if #held ~= #starts then return false end
  for i = 1, #held do
    if held[i] ~= starts[i] then return false end
  end
  return true
end
