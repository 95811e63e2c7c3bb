/** The words of rows in English. The server reads this table too, so it is written as JSON. */
export const tag = "en";

export const few = {
  "blank": "⟨blank⟩",
  "tied": "tied",
  "not_ranked": "not ranked",
  "you": "You",
  "to_record": "To {rank}, {name}"
};
