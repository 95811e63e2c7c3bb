--@include opened
-- Step: refuse a plan by other rules than the board has. `ruled` is the edition with which its rules last changed.
if (request.ruled or false) ~= board.ruled then return {'ruled'} end
