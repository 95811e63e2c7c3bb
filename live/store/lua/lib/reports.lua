--@include clock
-- Viewer reports: how many viewers each process has, and when it reported them.

-- Returns the number of viewers of all processes except `process`, and the processes that have not reported for `ttl`
-- milliseconds: these have crashed.
local function reported(viewers, process, ttl)
  local held, total, old = redis.call('HGETALL', viewers), 0, {}
  for i = 1, #held, 2 do
    if held[i] ~= process then
      local number, at = string.match(held[i + 1], '^(%d+) (%d+)$')
      if math.abs(now - tonumber(at)) < ttl then  -- a time far ahead is from before the clock was set back
        total = total + tonumber(number)
      else
        old[#old + 1] = held[i]
      end
    end
  end
  return total, old
end
