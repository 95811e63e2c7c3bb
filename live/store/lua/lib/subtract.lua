--@include ranking
-- Takes values from the scores of distinct members. Returns what `put` needs, and writes nothing. Hidden members have no
-- score. If a sum of zero is no score, a member whose slots added up to zero had no record. It gets a record if its score
-- is no longer zero. Otherwise `held` returns, for members with a sum of zero, whether the window still holds each.
local function subtracted(ranking, members, values, held)
  if #members == 0 then return {}, {}, {} end
  local unseen = hidden_of(members)
  local names, old = look_up(ranking, members)
  local new, zeros, places = {}, {}, {}
  for i = 1, #members do
    local score = (old[i] or 0) - values[i]
    if unseen[i] then
      new[i] = false
    elseif score ~= 0 then
      new[i] = score
    elseif not zero_is_none then
      zeros[#zeros + 1], places[#places + 1] = members[i], i
    end
  end
  local stays = #zeros > 0 and held(zeros)
  for i, place in ipairs(places) do
    if stays[i] then new[place] = 0 end
  end
  return names, old, new
end
