/** The words of rows in simplified Chinese. The server reads this table too, so it is written as JSON. */
export const tag = "zh-Hans";

export const few = {
  "blank": "⟨空白⟩",
  "tied": "并列",
  "not_ranked": "未上榜",
  "you": "你",
  "to_record": "距第 {rank} 名 {name}"
};
