// Package bench is the module of what `make bench` needs and the product does not: the peers that sandboxd is measured
// against, and the library that draws the plot. Command bench of the product's module runs both as programs of their own.
package bench
