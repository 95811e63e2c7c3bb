-- Step: refuse values that leave the range. A value is within ±most, so that no sum over the slots leaves ±2^53. Where
-- fields add up, each field of a value is within its bounds instead, so that the digits have room for sums over slots.
local most = request.most

local function is_outside(group, j)
  local value, logged, coming = group.values[j], group.logged, group.coming
  if not fields then
    return math.abs(value) > most or value + (logged and logged[j] + coming[j] or 0) > most
  end
  local held, more = logged and split(logged[j] / 2), group.lower and group.lower[group.members[j]] or {}
  for i, digit in ipairs(split(value)) do
    local field = fields[i]
    if digit < field[LEAST] or digit > field[MOST] then return true end
    if held and digit + 2 * (held[i] + (more[i] or 0)) > field[REACH] then return true end
  end
end

if fields or widest > most then
  local out = {'range'}
  for i = 1, #groups do
    local group = groups[i]
    for j, member in ipairs(group.members) do
      if is_outside(group, j) then
        local held, logged = group.olds[j] or 0, group.logged and group.logged[j] or 0
        local told = group.logged and fields and digits(held) .. ' ' .. digits(logged / 2) or digits(held + logged)
        out[#out + 1], out[#out + 2], out[#out + 3] = digits(group.start), member, told
      end
    end
  end
  if #out > 1 then return out end
end
