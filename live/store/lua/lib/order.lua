-- The order in which a ranking is read. `forward`: scores ascending, then names ascending; `backward`: both descending;
-- `turned`: scores descending, names ascending, which no command of the sorted set gives.
local view = request.view

local function before(x, y)  -- Lua compares strings by locale, the sorted set by bytes
  for i = 1, math.min(#x, #y) do
    local p, q = string.byte(x, i), string.byte(y, i)
    if p ~= q then return p < q end
  end
  return #x < #y
end

local function better(set, score)  -- returns how many members of a set are ahead of a score
  if view.order == 'forward' then return redis.call('ZCOUNT', set, '-inf', '(' .. score) end
  return redis.call('ZCOUNT', set, '(' .. score, '+inf')
end

local function nth(position)
  return redis.call(view.order == 'backward' and 'ZREVRANGE' or 'ZRANGE', ranking, position, position)[1]
end

-- Returns how many records come before a position (a score and a name), and whether a record is at the position.
local function place(score, name)
  local ahead, same = better(ranking, score), redis.call('ZCOUNT', ranking, score, score)
  local first = view.order == 'turned' and redis.call('ZCOUNT', ranking, '-inf', '(' .. score) or ahead
  local low, high = first, first + same
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = nth(middle)
    local earlier = before(there, name)
    if view.order == 'backward' then earlier = before(name, there) end
    if earlier then low = middle + 1 else high = middle end
  end
  return ahead + low - first, low < first + same and nth(low) == name
end

local function place_of(name)  -- returns the score of a record, and how many come before it; nil for no record
  local score = redis.call('ZSCORE', ranking, name)
  if not score then return end
  if view.order == 'forward' then return score, redis.call('ZRANK', ranking, name) end
  if view.order == 'backward' then return score, redis.call('ZREVRANK', ranking, name) end
  local below = redis.call('ZCOUNT', ranking, '-inf', '(' .. score)
  return score, better(ranking, score) + redis.call('ZRANK', ranking, name) - below
end

local function rank_of(score, position)  -- returns the rank, counted from 1
  if view.ranks == 'ordinal' then return position + 1 end
  return better(view.ranks == 'dense' and levels or ranking, score) + 1
end
