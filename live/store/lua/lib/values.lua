-- What the slots hold after a batch. A value is within ±most, so that no sum over the slots leaves ±2^53.
local operation, most = rules.operation, request.most
local incr = operation == 'incr'
local widest = 0  -- the value farthest from zero, without its sign

-- Sets `values`, and from what the slot holds `olds`; `fresh` is the number of members that are new in the slot.
local function read_values(group)
  local members, amounts, values, fresh = group.members, group.amounts, {}, 0
  local olds = call('HMGET', group.slot, unpack(members))
  for i = 1, #members do
    local old, value = olds[i], amounts[i]
    if old then old = old + 0 else old = nil end  -- a number; faster than `tonumber`
    if not old then
      fresh = fresh + 1
    elseif incr then
      value = old + value
    elseif (operation == 'max' and old >= value) or (operation == 'min' and old <= value) then
      value = old
    end
    if value > widest then widest = value elseif -value > widest then widest = -value end
    values[i], olds[i] = value, old
  end
  group.values, group.olds, group.fresh = values, olds, fresh
end

local function out_of_range()
  if widest <= most then return end
  local out = {'range'}
  for i = 1, #groups do
    local group = groups[i]
    local logged, coming = group.logged or {}, group.coming or {}
    for j, member in ipairs(group.members) do
      local value, held = group.values[j], (group.olds[j] or 0) + (logged[j] or 0)
      if math.abs(value) > most or value + (logged[j] or 0) + (coming[j] or 0) > most then
        out[#out + 1], out[#out + 2], out[#out + 3] = digits(group.start), member, digits(held)
      end
    end
  end
  return out
end
