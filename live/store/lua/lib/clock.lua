local function digits(number)
  return string.format('%.0f', number)
end

local time = redis.call('TIME')
local seconds = tonumber(time[1])
local now = seconds * 1000 + math.floor(tonumber(time[2]) / 1000)  -- milliseconds

-- Whether the caller is right about the board's clock. `newest` is the newest slot of the board, and `latest` its
-- newest event time (ms). Each is nil if there is none. Slots never go backward: the newest slot stays the newest when
-- the store's clock is set back.
local function fits(plan, newest, latest)
  local current, till = plan.current, plan.till
  if plan.by_event then
    return newest == current and (not till or not latest or latest < till)
  end
  if newest ~= current and (newest and newest > current or seconds < current) then return false end
  return not till or now < till
end

local function replan(newest, latest, ...)
  return {'replan', newest and digits(newest) or '', digits(now), latest and digits(latest) or '', ...}
end
