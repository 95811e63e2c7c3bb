-- Step: give the store key `held` the corrected `values`, where '' is none, and the ranking what follows from them.
local ranked = {key = ranking, reached = reached, levels = levels, suffix = request.suffix}

-- The scores of members whose slot was corrected: the sums of what all slots hold.
local function rank()
  if request.tags then
    for i, tag in ipairs(request.tags) do
      if tag ~= '' then call('HSETNX', reached, names[i], tag) end
    end
  end
  local sums = call('HMGET', held, unpack(names))
  for i = 1, #names do sums[i] = tonumber(sums[i]) end
  for _, other in ipairs(others) do
    local more = call('HMGET', other, unpack(names))
    for i = 1, #names do
      if more[i] then sums[i] = (sums[i] or 0) + tonumber(more[i]) end
    end
  end
  local unseen, tagged, old = hidden_of(names), look_up(ranked, names)
  for i = 1, #names do
    if unseen[i] then sums[i] = false elseif sums[i] == 0 and rules.operation == 'incr' then sums[i] = nil end
  end
  put(ranked, board.offset, names, tagged, old, sums)
  record_tags(board, granted)
end

-- The records of members whose tag was corrected get a new name.
local function rename()
  for i = 1, #names do
    local score = call('ZSCORE', ranking, seen[i] .. names[i])
    if score then
      call('ZREM', ranking, seen[i] .. names[i])
      call('ZADD', ranking, score, values[i] .. names[i])
    end
  end
end

local function correct()
  local kept, dropped = {}, {}
  for i = 1, #names do
    if values[i] == '' then
      dropped[#dropped + 1] = names[i]
    elseif kind == 'log' then
      kept[#kept + 1], kept[#kept + 2] = values[i], names[i]
    else
      kept[#kept + 1], kept[#kept + 2] = names[i], values[i]
    end
  end
  if #kept > 0 then call(kind == 'log' and 'ZADD' or 'HSET', held, unpack(kept)) end
  if #dropped > 0 then call(kind == 'log' and 'ZREM' or 'HDEL', held, unpack(dropped)) end
  if kind == 'slot' then
    if #kept > 0 then call('ZADD', slots, request.start, request.start) end
    rank()
  elseif kind == 'reached' then
    rename()
  end
end
