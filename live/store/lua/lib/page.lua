--@include clock
--@include order
-- Consecutive records, in the order of the view.
local function rows_at(start, limit, count)  -- returns {name, score, ...}; `count` is the number of all records
  local range = view.order == 'forward' and 'ZRANGE' or 'ZREVRANGE'
  local rows = redis.call(range, ranking, start, start + limit - 1, 'WITHSCORES')
  if view.order ~= 'turned' then return rows end
  local records = #rows / 2
  local first, turned = 1, {}
  while first <= records do  -- reverse each run of equal scores; read a run again if only a part of it is in `rows`
    local score, last = rows[2 * first], first
    while last < records and rows[2 * last + 2] == score do last = last + 1 end
    local whole = (first > 1 or start == 0) and (last < records or start + records == count)
    local run
    if not whole then
      local below = redis.call('ZCOUNT', ranking, '-inf', '(' .. score)
      local from = below + start + first - 1 - better(ranking, score)
      run = redis.call('ZRANGE', ranking, from, from + last - first)
    end
    for i = first, last do
      turned[#turned + 1] = run and run[i - first + 1] or rows[2 * (last - i + first) - 1]
      turned[#turned + 1] = score
    end
    first = last + 1
  end
  return turned
end

local function page_at(start, limit, count)  -- returns start, first rank, rows, and metadata if the view has it
  local rows = limit > 0 and rows_at(start, limit, count) or {}
  if #rows == 0 then return digits(start), '', rows, {} end
  local rank = digits(rank_of(rows[2], start))
  if not view.described then return digits(start), rank, rows, {} end
  local members = {}
  for i = 1, #rows / 2 do
    members[i] = not view.tagged and rows[2 * i - 1] or string.sub(rows[2 * i - 1], 15)
  end
  return digits(start), rank, rows, redis.call('HMGET', metadata, unpack(members))
end

local function around(member, neighbours)  -- returns start and limit of a record with its neighbours, or nil
  local name = not view.tagged and member or (redis.call('HGET', reached, member) or '') .. member
  local score, position = place_of(name)
  if not score then return end
  local start = math.max(0, position - neighbours)
  return start, position + neighbours - start + 1
end
