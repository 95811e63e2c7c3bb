local function digits(number)
  return string.format('%.0f', number)
end

-- The clock of a board: the store's own time, in microseconds (`micros`), milliseconds (`now`) and seconds. It never goes
-- back. The board's state keeps its time at the last change (`clock`). While the store's time is earlier, because that
-- clock was set back or another server took over, the board's clock stands still.
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = (micros - micros % 1000) / 1000
local seconds = tonumber(time[1])
local store_now = now  -- for what must not stand still, such as waiting

-- Sets the clock of a board. `held` is the field `clock` of its state, or another time before which it must not go.
local function set_clock(held)
  held = tonumber(held)
  if held and held > micros then
    micros = held
    now, seconds = (micros - micros % 1000) / 1000, (micros - micros % 1000000) / 1000000
  end
end

-- Whether the caller is right about the board's clock. `newest` is the newest slot of the board, and `latest` its
-- newest event time (ms). Each is nil if there is none.
local function fits(plan, newest, latest)
  local current, till = plan.current, plan.till
  if plan.by_event then return newest == current and (not till or not latest or latest < till) end
  return seconds >= current and (not till or now < till)
end

-- Returns {'replan', newest, now, latest, ...} — the caller is wrong about the board's clock; `now` in milliseconds.
local function replan(newest, latest, ...)
  return {'replan', newest and digits(newest) or '', digits(now), latest and digits(latest) or '', ...}
end
