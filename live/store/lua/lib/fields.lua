-- The digits of scores, where fields add up: a score is the sum of all digits times their weights. A digit is from
-- -reach to reach, so it has room for more than a total within its bounds. See `SumPacking` in `live/domain/packing.py`.
local fields = request.digits  -- for each field: weight, reach, least total, largest total; nil on other boards
local WEIGHT, REACH, LEAST, MOST = 1, 2, 3, 4

-- Returns the digits of a score or an amount.
local function split(number)
  local values = {}
  for i = 1, #fields do
    local weight = fields[i][WEIGHT]
    local rest = math.fmod(number, weight)  -- exact, unlike `%`
    if 2 * rest > weight then rest = rest - weight elseif 2 * rest < -weight then rest = rest + weight end
    values[i], number = (number - rest) / weight, rest
  end
  return values
end

-- Returns the negative part of an amount, without its sign: of each field, where fields add up.
local function below_zero(amount)
  if not fields then return math.max(0, -amount) end
  local sum, values = 0, split(amount)
  for i = 1, #fields do
    if values[i] < 0 then sum = sum - values[i] * fields[i][WEIGHT] end
  end
  return sum
end
