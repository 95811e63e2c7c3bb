--@include fields
-- Step: refuse values that leave the range. A value is within ±most, so that no sum over the slots leaves ±2^53. Where
-- fields add up, each field of a value is within its bounds instead, so that the digits have room for sums over slots.
local most = request.most

local function is_outside(group, j)
  local value, logged, coming = group.values[j], group.logged, group.coming
  if not fields then
    return math.abs(value) > most or value + (logged and logged[j] + coming[j] or 0) > most
  end
  if leaves_bounds(value) then return true end
  if not logged then return false end
  local lower, more = split(logged[j] / 2), group.lower[group.members[j]] or {}
  for i, digit in ipairs(split(value)) do
    if digit + 2 * (lower[i] + (more[i] or 0)) > fields[i][REACH] then return true end
  end
  return false
end

local out
for i = 1, (fields or widest > most) and #groups or 0 do
  local group = groups[i]
  local members = group.members
  for j = 1, #members do
    if is_outside(group, j) then
      out = out or {'range'}
      local held, logged = group.olds[j] or 0, group.logged and group.logged[j] or 0
      local told = group.logged and fields and digits(held) .. ' ' .. digits(logged / 2) or digits(held + logged)
      out[#out + 1], out[#out + 2], out[#out + 3] = digits(group.start), members[j], told
    end
  end
end
if out then return out end
