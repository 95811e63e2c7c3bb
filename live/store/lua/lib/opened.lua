--@include board
-- Step: read the state of the board, or return what `open_board` refuses.
local board, refusal = open_board()
if refusal then return refusal end
