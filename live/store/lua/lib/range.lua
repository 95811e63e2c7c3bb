-- Step: refuse values that leave the range. A value is within ±most, so that no sum over the slots leaves ±2^53.
local most = request.most
if widest > most then
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
