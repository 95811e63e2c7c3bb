-- The sum of all scores of a table: a whole number of any size, in two fields of the board's state. `total` stays far
-- within 64 bits, and `high` counts what went beyond, in units of 2^40; so no increment can fail.
local function grow(suffix, change)  -- within ±2^53
  if change == 0 then return end
  local sum = redis.call('HINCRBY', meta, 'total' .. suffix, digits(change))
  if sum > 1152921504606846976 or sum < -1152921504606846976 then
    local units = math.floor(sum / 1099511627776)
    redis.call('HINCRBY', meta, 'total' .. suffix, digits(-1099511627776 * units))
    redis.call('HINCRBY', meta, 'high' .. suffix, digits(units))
  end
end
