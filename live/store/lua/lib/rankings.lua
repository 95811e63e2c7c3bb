--@include same_slots
-- Returns the rankings of a board whose slots have these starts, each with the store keys of its `slots`. `keys` has from
-- `first` on all slots, and then the store keys of each ranking: of each slot with `tables`, and otherwise of the only one.
local function rankings_of(keys, first, starts, tables)
  local rankings, place = {}, first + #starts
  for i = 1, tables and #starts or 1 do
    local ranking = {suffix = tables and ':' .. starts[i] or '', slots = {tables and keys[first + i - 1]}}
    ranking.key, ranking.reached, ranking.levels, ranking.metadata, ranking.votes = unpack(keys, place, place + 4)
    rankings[i], place = ranking, place + 5
  end
  for i = 1, tables and 0 or #starts do rankings[1].slots[i] = keys[first + i - 1] end
  return rankings
end
