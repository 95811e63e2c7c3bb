-- Step: compute what each slot will hold after the batch. Sets for each group the `values`, the values before the batch
-- (`olds`), and how many members are new in the slot (`fresh`).
local operation = rules.operation
local incr = operation == 'incr'
local widest, all_fresh = 0, 0  -- the largest absolute value, and how many members are new in their slots

for i = 1, #groups do
  local group = groups[i]
  local members, amounts, values, fresh = group.members, group.amounts, {}, 0
  local olds, dropped = call('HMGET', group.slot, unpack(members)), nil
  if group.drops then
    dropped = {}
    for _, j in ipairs(group.drops) do dropped[j] = true end
  end
  for j = 1, #members do
    local old, value = olds[j], amounts[j]
    if old then old = old + 0 else old = nil end  -- a number; faster than `tonumber`
    if not old then
      fresh = fresh + 1
    elseif incr then
      value = old + value
    elseif dropped and dropped[j] then
      value = old
    elseif (operation == 'max' and old >= value) or (operation == 'min' and old <= value) then
      value = old
    end
    if value > widest then widest = value elseif -value > widest then widest = -value end
    values[j], olds[j] = value, old
  end
  group.values, group.olds, group.fresh, group.dropped = values, olds, fresh, dropped
  all_fresh = all_fresh + fresh
end
