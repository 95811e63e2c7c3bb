-- Deletes store keys in bounded steps, because freeing a large one at once delays all other commands.
--
-- Removes at most `most` elements of a store key. Returns how many, and whether elements are left.
local SMALL = 64  -- elements that are freed at once
local function discard(key, most)
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then return 0, false end
  local size
  if kind == 'zset' then
    size = redis.call('ZCARD', key)
  elseif kind == 'hash' then
    size = redis.call('HLEN', key)
  elseif kind == 'set' then
    size = redis.call('SCARD', key)
  end
  if not size or size <= math.max(most, SMALL) then
    redis.call('UNLINK', key)
    return size or 1, false
  end
  if most > 0 then
    if kind == 'zset' then
      redis.call('ZREMRANGEBYRANK', key, 0, most - 1)
    elseif kind == 'hash' then
      redis.call('HDEL', key, unpack(redis.call('HRANDFIELD', key, most)))
    else
      redis.call('SPOP', key, most)
    end
  end
  return most, true
end

-- Removes at most `most` elements of several store keys. Returns whether elements are left.
local function discard_all(old, most)
  local is_left = false
  for _, key in ipairs(old) do
    local removed, more = discard(key, most)
    most, is_left = math.max(0, most - removed), is_left or more
  end
  return is_left
end
