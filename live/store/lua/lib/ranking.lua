-- The rules of a ranking. A ranking is a table of its store keys (`key`, `reached`, `levels`, `metadata`) and of the
-- `suffix` of the fields that hold its total. It has a record for each member with a score; a sum of zero is no score.
-- Where ties go by time, the name of a record is the member after a tag of 8 bytes: when it reached its score.
local rules = request.rules
local EXACT = 9007199254740991

-- The total is a whole number of any size, in two fields of the board's state. `total` stays far within 64 bits, and
-- `high` counts what went beyond, in units of 2^40; so no increment can fail.
local function grow(ranking, change)  -- within ±2^53
  if change == 0 then return end
  local sum = redis.call('HINCRBY', meta, 'total' .. ranking.suffix, digits(change))
  if sum > 1152921504606846976 or sum < -1152921504606846976 then
    local units = math.floor(sum / 1099511627776)
    redis.call('HINCRBY', meta, 'total' .. ranking.suffix, digits(-1099511627776 * units))
    redis.call('HINCRBY', meta, 'high' .. ranking.suffix, digits(units))
  end
end

local function tag(offset, event)
  if rules.ties == 'falling' then return struct.pack('>I5I3', 1099511627775 - offset, 16777215 - event) end
  return struct.pack('>I5I3', offset, event)
end

-- The names and the scores of members; a name is '' and a score nil where there is none.
local function look_up(ranking, members)
  local names, count = members, #members
  if rules.ties then
    names = redis.call('HMGET', ranking.reached, unpack(members))
    for i = 1, count do names[i] = names[i] and names[i] .. members[i] or '' end
  end
  local scores = redis.call('ZMSCORE', ranking.key, unpack(names))
  for i = 1, count do scores[i] = tonumber(scores[i]) end
  return names, scores
end

-- Which members are hidden: counted, but without a record.
local function hidden_of(members)
  return redis.call('EXISTS', hidden) == 1 and redis.call('HMGET', hidden, unpack(members)) or {}
end

-- Gives distinct members the scores `new`, where nil is no record and false no change. `names` and `old` are from
-- `look_up`. `events` says which event of the batch moved a member to its score: negative where it left the score in
-- between, 0 for none. Without `events`, a record keeps its tag. With `keeps_tags`, so does a member that loses its
-- record.
local function put(ranking, offset, members, names, old, new, events, keeps_tags)
  local tagged, dense, summed = rules.ties, rules.dense, rules.summed
  local ranked, dropped, tags, untagged, left = {}, {}, {}, {}, {}
  local r, d, t, gained = 0, 0, 0, 0
  for i = 1, #members do
    local score, before, name = new[i], old[i], names[i]
    if score ~= false then
      local event = events and events[i]
      if not score then
        if before or tagged then
          d = d + 1
          dropped[d], untagged[d] = name, members[i]
        end
      elseif tagged and (name == '' or event and (event < 0 or event > 0 and score ~= before)) then
        if before then
          d = d + 1
          dropped[d] = name
        end
        local mark = tag(offset, event and math.abs(event) or i)
        tags[t + 1], tags[t + 2] = members[i], mark
        t = t + 2
        ranked[r + 1], ranked[r + 2] = score, mark .. members[i]
        r = r + 2
      elseif score ~= before then
        ranked[r + 1], ranked[r + 2] = score, name
        r = r + 2
      end
      if score ~= before then
        if summed then
          local change = (score or 0) - (before or 0)
          if change > EXACT or change < -EXACT then  -- one after the other, each of which is exact
            grow(ranking, -(before or 0))
            change = score or 0
          end
          local grown = gained + change
          if grown > EXACT or grown < -EXACT then
            grow(ranking, gained)
            grown = change
          end
          gained = grown
        end
        if dense then
          if before then left[#left + 1] = digits(before) end
          if score then redis.call('ZADD', ranking.levels, score, digits(score)) end
        end
      end
    end
  end
  grow(ranking, gained)
  if d > 0 then redis.call('ZREM', ranking.key, unpack(dropped)) end
  if r > 0 then redis.call('ZADD', ranking.key, unpack(ranked)) end
  if t > 0 then redis.call('HSET', ranking.reached, unpack(tags)) end
  if tagged and not keeps_tags then
    local gone = {}
    for _, member in pairs(untagged) do gone[#gone + 1] = member end
    if #gone > 0 then redis.call('HDEL', ranking.reached, unpack(gone)) end
  end
  for i = 1, #left do
    if redis.call('ZCOUNT', ranking.key, left[i], left[i]) == 0 then redis.call('ZREM', ranking.levels, left[i]) end
  end
end

-- Takes the last records out of a ranking that holds more than it may, with all that belongs to them.
local function trim(ranking, slot)
  local excess = redis.call('ZCARD', ranking.key) - rules.cap
  while excess > 0 do
    local last = rules.order == 'forward' and 'ZREVRANGE' or 'ZRANGE'
    local score = redis.call(last, ranking.key, 0, 0, 'WITHSCORES')[2]
    local range = rules.order == 'backward' and 'ZRANGEBYSCORE' or 'ZREVRANGEBYSCORE'
    local names = redis.call(range, ranking.key, score, score, 'LIMIT', 0, math.min(excess, 1000))
    local members, old = names, {}
    if rules.ties then
      members = {}
      for i = 1, #names do members[i] = string.sub(names[i], 9) end
    end
    for i = 1, #names do old[i] = tonumber(score) end
    redis.call('HDEL', slot, unpack(members))
    redis.call('HDEL', ranking.metadata, unpack(members))
    put(ranking, 0, members, names, old, {})
    excess = excess - #names
  end
end
