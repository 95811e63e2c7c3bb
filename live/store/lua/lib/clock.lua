local function digits(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local seconds = tonumber(time[1])
local now = seconds * 1000 + math.floor(tonumber(time[2]) / 1000)  -- milliseconds

-- Whether a plan fits the board's clock: `current` is the newest slot by the plan, `newest` the one that the board knows
-- ('' for none), `latest` the newest event time (ms) that it knows; the plan holds before `till`.
-- A slot never goes backward: it stays the newest though the store's clock were set back.
local function fits(clock, current, newest, latest, till)
  if clock == 'event' then
    return newest == current and (till == '' or not latest or tonumber(latest) < tonumber(till))
  end
  if newest ~= current and (newest ~= '' and tonumber(newest) > tonumber(current) or seconds < tonumber(current)) then
    return false
  end
  return till == '' or now < tonumber(till)
end
