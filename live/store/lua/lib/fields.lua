-- The digits of scores, where fields add up: a score is the sum of all digits times their weights. A digit is from
-- -reach to reach, so it has room for more than a total within its bounds. See `SumPacking` in `live/domain/packing.py`.
local fields = request.digits  -- for each field: weight, reach, least total, largest total; nil on other boards
local WEIGHT, REACH, LEAST, MOST, HALF = 1, 2, 3, 4, 5
for i = 1, fields and #fields or 0 do
  fields[i][HALF] = (fields[i][WEIGHT] - 1) / 2
end

-- Returns the digits of a score or an amount. It is within ±2^52, so `%` is exact.
local function split(number)
  local values = {}
  for i = 1, #fields do
    local field = fields[i]
    local weight, half = field[WEIGHT], field[HALF]
    local rest = (number + half) % weight - half
    values[i], number = (number - rest) / weight, rest
  end
  return values
end

-- Whether a total leaves its bounds. It is like `split`, but several times as fast.
local function leaves_bounds(score)
  for i = 1, #fields do
    local field = fields[i]
    local weight, half = field[1], field[5]
    local rest = (score + half) % weight - half
    local digit = (score - rest) / weight
    if digit < field[3] or digit > field[4] then return true end
    score = rest
  end
  return false
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
