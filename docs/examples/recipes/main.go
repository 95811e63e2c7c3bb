package main

import ("bytes"; "encoding/json"; "fmt"; "io"; "net/http"; "strings")

func like(w http.ResponseWriter, r *http.Request) {
	event, _ := json.Marshal(map[string]string{"key": strings.TrimPrefix(r.URL.Path, "/like/")})
	answer, err := http.Post("http://127.0.0.1:8000/v1/events", "application/json", bytes.NewReader(event))
	if err != nil { http.Error(w, err.Error(), http.StatusBadGateway); return }
	defer answer.Body.Close()
	w.WriteHeader(answer.StatusCode)
	io.Copy(w, answer.Body)
}
func page(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `<iframe src="http://127.0.0.1:8000/embed/posts"></iframe>`) }
func main() {
	http.HandleFunc("/like/", like)
	http.HandleFunc("/", page)
	fmt.Println(http.ListenAndServe("127.0.0.1:8080", nil))
}
