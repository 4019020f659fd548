package openai

import (
	"encoding/json/v2"
	"net/http"
	"strings"
)

// madeAt stands where the dialect wants a model's age: a role has none.
const madeAt = 1_700_000_000

// WriteModels answers a list of models with the names of roles.
func WriteModels(w http.ResponseWriter, roles []string) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list", Data: []model{}}
	for _, r := range roles {
		list.Data = append(list.Data, model{ID: strings.ToValidUTF8(r, "?"), Object: "model", Created: madeAt, OwnedBy: "skep"})
	}
	w.Header().Set("Content-Type", "application/json")
	b, err := json.Marshal(list)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(append(b, '\n'))
}
