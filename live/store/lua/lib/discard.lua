-- Deletes store keys in bounded steps, because freeing a large one at once delays all other commands.
--
-- Removes about `most` elements of a store key, those of a hash or set from a cursor of its scan on. Returns how many,
-- and the cursor for the next step; nil if nothing is left. To draw random fields instead takes five times as long.
local SMALL = 64  -- elements that are freed at once
local SCANS = {hash = {'HLEN', 'HSCAN', 'HDEL', 2}, set = {'SCARD', 'SSCAN', 'SREM', 1}}
local function discard(key, most, cursor)
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then return 0 end
  local size = kind == 'zset' and redis.call('ZCARD', key) or SCANS[kind] and redis.call(SCANS[kind][1], key)
  if not size or size <= SMALL then
    redis.call('UNLINK', key)
    return size or 1
  end
  if kind == 'zset' then return redis.call('ZREMRANGEBYRANK', key, 0, most - 1), '0' end
  local _, scan, remove, words = unpack(SCANS[kind])
  local names = {}
  repeat
    local found = redis.call(scan, key, cursor, 'COUNT', most)
    cursor = found[1]
    for i = 1, #found[2], words do names[#names + 1] = found[2][i] end
  until #names > 0 or cursor == '0'
  local count = math.min(#names, 2 * most)  -- a scan returns all of a small hash, whatever `most` is
  if count > 0 then redis.call(remove, key, unpack(names, 1, count)) end
  return count, cursor
end

-- Removes about `most` elements of several store keys. Returns the cursor for the next step; nil if nothing is left.
local function discard_all(old, most, cursor)
  for _, key in ipairs(old) do
    if most <= 0 then return '0' end
    local removed, left = discard(key, most, cursor)
    if left then return left end
    if removed > 0 then most, cursor = most - removed, '0' end  -- the cursor is for the first store key that is left
  end
end
